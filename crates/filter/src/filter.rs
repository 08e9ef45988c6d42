//! The table filter.

use weir_types::TableName;

use crate::error::{FilterError, Result};
use crate::pattern::{NameCase, TablePattern};

/// Schemas that are never replicated: the server's own, and Weir's.
pub const SYSTEM_SCHEMAS: [&str; 5] = ["mysql", "sys", "information_schema", "performance_schema", "weir"];

/// Whether a schema is never replicated. System schemas are compared without case on
/// every server.
pub fn is_system_schema(schema: &str) -> bool {
    SYSTEM_SCHEMAS
        .iter()
        .any(|name| schema.eq_ignore_ascii_case(name))
}

/// Whether a table, or some table of a schema if `name` has no table, is replicated.
/// Without a filter everything is but system schemas.
pub fn is_wanted(filter: Option<&TableFilter>, name: &TableName) -> bool {
    match filter {
        _ if is_system_schema(&name.schema) => false,
        None => true,
        Some(filter) if name.table.is_empty() => filter.may_match_schema(&name.schema),
        Some(filter) => filter.matches(name),
    }
}

#[derive(Clone, Debug)]
struct Rule {
    include: bool,
    pattern: TablePattern,
}

/// Compiled rules. The last rule that matches a table decides; a table that no rule
/// matches is left out. Without rules every table is let through. System schemas are
/// left out whatever the rules say.
#[derive(Clone, Debug)]
pub struct TableFilter {
    rules: Vec<Rule>,
    case: NameCase,
}

impl TableFilter {
    /// Compiles rules: a pattern includes, `!` and a pattern excludes.
    ///
    /// # Errors
    /// A rule that is not a pattern; rules that only exclude.
    pub fn new<S: AsRef<str>>(rules: &[S], case: NameCase) -> Result<Self> {
        let rules = rules
            .iter()
            .map(|rule| {
                let text = rule.as_ref();
                let (include, pattern) = match text.strip_prefix('!') {
                    Some(rest) => (false, rest),
                    None => (true, text),
                };
                let pattern = TablePattern::parse(pattern, case)?;
                Ok(Rule { include, pattern })
            })
            .collect::<Result<Vec<_>>>()?;
        if !rules.is_empty() && rules.iter().all(|rule| !rule.include) {
            return Err(FilterError::OnlyExclusions);
        }
        Ok(Self { rules, case })
    }

    /// Lets everything through but system schemas.
    pub const fn all(case: NameCase) -> Self {
        Self {
            rules: Vec::new(),
            case,
        }
    }

    /// How names are compared.
    pub const fn case(&self) -> NameCase {
        self.case
    }

    /// Whether a table is replicated.
    pub fn matches(&self, name: &TableName) -> bool {
        if is_system_schema(&name.schema) {
            return false;
        }
        if self.rules.is_empty() {
            return true;
        }
        let (schema, table) = (self.case.fold(&name.schema), self.case.fold(&name.table));
        self.rules
            .iter()
            .rev()
            .find(|rule| rule.pattern.matches(&schema, &table))
            .is_some_and(|rule| rule.include)
    }

    /// Whether some table of a schema can be replicated; decides about CREATE, ALTER
    /// and DROP DATABASE.
    pub fn may_match_schema(&self, schema: &str) -> bool {
        if is_system_schema(schema) {
            return false;
        }
        if self.rules.is_empty() {
            return true;
        }
        let schema = self.case.fold(schema);
        // From the last rule on: an exclusion of all tables ends the search.
        for rule in self
            .rules
            .iter()
            .rev()
            .filter(|r| r.pattern.schema.matches(&schema))
        {
            if rule.include {
                return true;
            }
            if rule.pattern.table.is_all() {
                return false;
            }
        }
        false
    }
}

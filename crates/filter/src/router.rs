//! Routes: the name of a table at the target.

use std::collections::BTreeMap;

use weir_types::TableName;

use crate::error::{FilterError, Result};
use crate::pattern::{NameCase, TablePattern};

/// One `[[route]]` of the changefeed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRule {
    /// Pattern of the tables that it concerns.
    pub pattern: String,
    /// Template of the target schema; none keeps the name.
    pub target_schema: Option<String>,
    /// Template of the target table; none keeps the name.
    pub target_table: Option<String>,
}

#[derive(Clone, Debug)]
enum Segment {
    Text(String),
    Schema,
    Table,
}

/// A name made from those of a table: text with `{schema}` and `{table}` in it.
#[derive(Clone, Debug)]
pub struct NameTemplate(Vec<Segment>);

impl NameTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// It is empty, or has braces around something else.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |reason| FilterError::Template {
            template: text.to_owned(),
            reason,
        };
        if text.is_empty() {
            return Err(bad("it is empty"));
        }
        let mut segments = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            if before.contains('}') {
                return Err(bad("`}` has no `{`"));
            }
            segments.push(Segment::Text(before.to_owned()));
            let (name, after) = after.split_once('}').ok_or_else(|| bad("`{` is not closed"))?;
            segments.push(match name {
                "schema" => Segment::Schema,
                "table" => Segment::Table,
                _ => return Err(bad("only `{schema}` and `{table}` are known")),
            });
            rest = after;
        }
        if rest.contains('}') {
            return Err(bad("`}` has no `{`"));
        }
        segments.push(Segment::Text(rest.to_owned()));
        Ok(Self(segments))
    }

    /// Whether the table's name is part of it.
    pub fn uses_table(&self) -> bool {
        self.0.iter().any(|segment| matches!(segment, Segment::Table))
    }

    /// Whether the schema's name is part of it.
    pub fn uses_schema(&self) -> bool {
        self.0.iter().any(|segment| matches!(segment, Segment::Schema))
    }

    /// The name.
    pub fn expand(&self, schema: &str, table: &str) -> String {
        self.0
            .iter()
            .map(|segment| match segment {
                Segment::Text(text) => text.as_str(),
                Segment::Schema => schema,
                Segment::Table => table,
            })
            .collect()
    }
}

#[derive(Clone, Debug)]
struct Route {
    pattern: TablePattern,
    schema: Option<NameTemplate>,
    table: Option<NameTemplate>,
}

/// Two or more source tables with one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// The target name of the first source.
    pub target: TableName,
    /// The sources, in the order given.
    pub sources: Vec<TableName>,
}

/// Compiled routes: the first that matches decides; without one the name stays.
#[derive(Clone, Debug)]
pub struct Router {
    routes: Vec<Route>,
    case: NameCase,
}

impl Router {
    /// Compiles routes.
    ///
    /// # Errors
    /// A pattern or template that is not understood; a route without target.
    pub fn new(rules: &[RouteRule], case: NameCase) -> Result<Self> {
        let routes = rules
            .iter()
            .map(|rule| {
                if rule.target_schema.is_none() && rule.target_table.is_none() {
                    return Err(FilterError::NoTarget {
                        pattern: rule.pattern.clone(),
                    });
                }
                Ok(Route {
                    pattern: TablePattern::parse(&rule.pattern, case)?,
                    schema: rule
                        .target_schema
                        .as_deref()
                        .map(NameTemplate::parse)
                        .transpose()?,
                    table: rule
                        .target_table
                        .as_deref()
                        .map(NameTemplate::parse)
                        .transpose()?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Self { routes, case })
    }

    /// Keeps every name.
    pub const fn identity(case: NameCase) -> Self {
        Self {
            routes: Vec::new(),
            case,
        }
    }

    /// Whether every name stays.
    pub const fn is_identity(&self) -> bool {
        self.routes.is_empty()
    }

    /// The name at the target.
    pub fn route(&self, name: &TableName) -> TableName {
        let (schema, table) = (self.case.fold(&name.schema), self.case.fold(&name.table));
        let found = self.routes.iter().find(|r| r.pattern.matches(&schema, &table));
        let Some(route) = found else {
            return name.clone();
        };
        let expand = |template: &Option<NameTemplate>, same: &std::sync::Arc<str>| match template {
            Some(template) => template.expand(&name.schema, &name.table).into(),
            None => std::sync::Arc::clone(same),
        };
        TableName {
            schema: expand(&route.schema, &name.schema),
            table: expand(&route.table, &name.table),
        }
    }

    /// The target of a whole schema, for CREATE, ALTER and DROP DATABASE: that of the
    /// first route that takes all of its tables to one schema. None where a route
    /// before it takes some of them elsewhere, or its target depends on the table: such
    /// a statement has no single target.
    pub fn route_schema(&self, schema: &str) -> Option<String> {
        let folded = self.case.fold(schema);
        for route in self.routes.iter().filter(|r| r.pattern.schema.matches(&folded)) {
            let target = match &route.schema {
                Some(template) if template.uses_table() => return None,
                Some(template) => template.expand(schema, ""),
                None => schema.to_owned(),
            };
            if route.pattern.table.is_all() {
                return Some(target);
            }
            if target != schema {
                return None;
            }
        }
        Some(schema.to_owned())
    }

    /// Source tables that would share a target. `names` are the tables known now; call
    /// it again when a table is made.
    pub fn collisions<'a>(&self, names: impl IntoIterator<Item = &'a TableName>) -> Vec<Collision> {
        let mut by_target: BTreeMap<(String, String), Collision> = BTreeMap::new();
        for name in names {
            let target = self.route(name);
            let key = (self.case.fold(&target.schema), self.case.fold(&target.table));
            by_target
                .entry(key)
                .or_insert_with(|| Collision {
                    target,
                    sources: Vec::new(),
                })
                .sources
                .push(name.clone());
        }
        by_target.into_values().filter(|c| c.sources.len() > 1).collect()
    }
}

//! The topic of a table, and which tables are on which topic.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_filter::NameTemplate;
use weir_types::TableName;

use crate::config::KafkaSinkConfig;
use crate::error::{KafkaSinkError, Result};

/// Longest name that Kafka takes.
const NAME_LENGTH_MAX: usize = 249;

/// The name that a template gives a table; characters that Kafka does not take become `_`.
fn fill(template: &NameTemplate, name: &TableName) -> String {
    let legal = |text: &str| -> String { text.chars().map(|c| if is_legal(c) { c } else { '_' }).collect() };
    template.expand(&legal(&name.schema), &legal(&name.table))
}

const fn is_legal(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// Open spans of the tables that are on one topic.
type Tenants = HashMap<TableName, usize>;

/// Topics of the tables of a changefeed.
pub(crate) struct Names {
    rows: NameTemplate,
    /// None: the topic of the rows.
    ddl: Option<Option<NameTemplate>>,
    /// Topics with open spans.
    taken: Mutex<HashMap<Arc<str>, Tenants>>,
}

impl Names {
    /// # Errors
    /// A template of the settings cannot be understood.
    pub(crate) fn new(config: &KafkaSinkConfig) -> Result<Self> {
        let parse = |text: &str| {
            NameTemplate::parse(text).map_err(|error| KafkaSinkError::TopicName {
                topic: text.to_owned(),
                table: TableName::new("{schema}", "{table}"),
                reason: error.to_string(),
            })
        };
        let ddl = match config.ddl_topic.as_deref() {
            None => None,
            Some("") => Some(None),
            Some(template) => Some(Some(parse(template)?)),
        };
        Ok(Self {
            rows: parse(&config.topic)?,
            ddl,
            taken: Mutex::default(),
        })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Arc<str>, Tenants>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A span of a table begins: its topic.
    ///
    /// # Errors
    /// Kafka does not take the name, or another table has come to it by chance.
    pub(crate) fn enter(&self, target: &TableName) -> Result<Arc<str>> {
        let topic = checked(&self.rows, target)?;
        let mut taken = self.taken();
        let tenants = taken.entry(Arc::clone(&topic)).or_default();
        self.shared_by_rule(Some(tenants), &topic, target)?;
        *tenants.entry(target.clone()).or_default() += 1;
        Ok(topic)
    }

    fn shared_by_rule(&self, tenants: Option<&Tenants>, topic: &str, target: &TableName) -> Result<()> {
        // All that are there are joined by rule, so that one stands for all.
        match tenants.and_then(|tenants| tenants.keys().next()) {
            Some(other) if !self.joins(other, target) => Err(KafkaSinkError::TopicShared {
                topic: topic.to_owned(),
                table: target.clone(),
                other: other.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Whether the rule itself puts two tables together: they differ only in what the
    /// template does not use. Otherwise it was replaced characters, or points in names.
    fn joins(&self, one: &TableName, other: &TableName) -> bool {
        (!self.rows.uses_schema() || one.schema == other.schema)
            && (!self.rows.uses_table() || one.table == other.table)
    }

    /// A span of a table has ended.
    pub(crate) fn leave(&self, target: &TableName) {
        let topic = fill(&self.rows, target);
        let mut taken = self.taken();
        let Some(tenants) = taken.get_mut(topic.as_str()) else {
            return;
        };
        if let Some(spans) = tenants.get_mut(target) {
            *spans -= 1;
            if *spans == 0 {
                tenants.remove(target);
            }
        }
        if tenants.is_empty() {
            taken.remove(topic.as_str());
        }
    }

    /// Whether DDL goes to the topics of the rows.
    pub(crate) const fn ddl_follows_rows(&self) -> bool {
        self.ddl.is_none()
    }

    /// The topic of DDL of a table, or of a schema if `target` has no table; none for
    /// none.
    ///
    /// # Errors
    /// Kafka does not take the name, or another table has come to it by chance.
    pub(crate) fn ddl_topic(&self, target: &TableName) -> Result<Option<Arc<str>>> {
        let template = match &self.ddl {
            None => &self.rows,
            Some(None) => return Ok(None),
            Some(Some(template)) => template,
        };
        if target.table.is_empty() && template.uses_table() {
            // The schema itself has no topic.
            return Ok(None);
        }
        let topic = checked(template, target)?;
        if self.ddl_follows_rows() && !target.table.is_empty() {
            let taken = self.taken();
            self.shared_by_rule(taken.get(&topic), &topic, target)?;
        }
        Ok(Some(topic))
    }
}

fn checked(template: &NameTemplate, target: &TableName) -> Result<Arc<str>> {
    let topic = fill(template, target);
    let reason = match topic.as_str() {
        "" => "it is empty".to_owned(),
        "." | ".." => "it is reserved".to_owned(),
        name if name.len() > NAME_LENGTH_MAX => {
            format!("it has {} characters, {NAME_LENGTH_MAX} are the most", name.len())
        }
        _ => return Ok(topic.into()),
    };
    Err(KafkaSinkError::TopicName {
        topic,
        table: target.clone(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_types::{ChangefeedId, LineageId};

    use super::*;

    fn names(topic: &str, ddl: Option<&str>) -> Names {
        let id = ChangefeedId("c".into());
        let mut config = KafkaSinkConfig::new(id, LineageId(1), Vec::new(), "state".into());
        config.topic = topic.to_owned();
        config.ddl_topic = ddl.map(str::to_owned);
        Names::new(&config).unwrap()
    }

    fn t(schema: &str, table: &str) -> TableName {
        TableName::new(schema, table)
    }

    #[test]
    fn templates_are_filled_and_characters_replaced() {
        let names = names("cdc-{schema}.{table}", None);
        assert_eq!(&*names.enter(&t("shop", "orders")).unwrap(), "cdc-shop.orders");
        assert_eq!(
            &*names.enter(&t("shop", "größe $1")).unwrap(),
            "cdc-shop.gr__e__1"
        );
        assert_eq!(
            names.ddl_topic(&t("shop", "orders")).unwrap().as_deref(),
            Some("cdc-shop.orders")
        );
        assert_eq!(names.ddl_topic(&t("shop", "")).unwrap(), None);
    }

    #[test]
    fn names_that_kafka_does_not_take_are_refused() {
        let names = names("{table}", None);
        let long = "x".repeat(250);
        for table in [".", "..", long.as_str()] {
            assert!(names.enter(&t("s", table)).is_err(), "{table}");
        }
        assert!(names.enter(&t("s", &long[..249])).is_ok());
    }

    #[test]
    fn tables_share_a_topic_by_rule_only() {
        let apart = names("{schema}.{table}", None);
        apart.enter(&t("a", "b c")).unwrap();
        let error = apart.enter(&t("a", "b-c")).map(drop);
        assert_eq!(error, Ok(()));
        assert!(matches!(
            apart.enter(&t("a", "b$c")),
            Err(KafkaSinkError::TopicShared { .. })
        ));
        assert!(matches!(
            apart.enter(&t("a.b", "c")),
            Ok(topic) if &*topic == "a.b.c"
        ));
        apart.leave(&t("a", "b c"));
        assert!(apart.enter(&t("a", "b$c")).is_ok());

        assert!(matches!(
            apart.enter(&t("a", "b.c")),
            Err(KafkaSinkError::TopicShared { .. })
        ));

        let by_name = names("{table}", None);
        by_name.enter(&t("a", "x y")).unwrap();
        assert!(by_name.enter(&t("b", "x y")).is_ok());
        assert!(by_name.enter(&t("c", "x$y")).is_err());
        by_name.leave(&t("a", "x y"));
        assert!(by_name.enter(&t("c", "x$y")).is_err());
        let by_schema = names("{schema}", None);
        by_schema.enter(&t("a b", "x")).unwrap();
        assert!(by_schema.enter(&t("a b", "y")).is_ok());
        assert!(by_schema.enter(&t("a$b", "x")).is_err());
        let fixed = names("all", None);
        fixed.enter(&t("a", "x")).unwrap();
        assert!(fixed.enter(&t("b", "y")).is_ok());
    }

    #[test]
    fn a_topic_is_free_when_its_last_span_has_ended() {
        let names = names("{schema}.{table}", None);
        let (one, other) = (t("a", "b c"), t("a", "b$c"));
        // A span that follows may begin before the one before has ended.
        names.enter(&one).unwrap();
        names.enter(&one).unwrap();
        names.leave(&one);
        assert!(names.enter(&other).is_err());
        names.leave(&one);
        assert!(names.enter(&other).is_ok());
        // One that never began ends without harm.
        names.leave(&t("z", "z"));
        names.leave(&one);
        assert!(names.enter(&one).is_err());
        names.leave(&other);
        assert!(names.taken().is_empty());
    }

    proptest! {
        /// Two tables on one topic agree in every part of their names that the rule uses.
        #[test]
        fn no_two_tables_come_to_one_topic_by_chance(
            template in "(\\{schema\\}|\\{table\\}|[a.]){1,4}",
            tables in proptest::collection::vec(("[ab.é$]{1,3}", "[ab.é$]{1,3}"), 2..8),
        ) {
            let names = names(&template, None);
            let mut topics: HashMap<Arc<str>, TableName> = HashMap::new();
            for (schema, table) in tables {
                let table = t(&schema, &table);
                let Ok(topic) = names.enter(&table) else { continue };
                prop_assert!(topic.chars().all(is_legal) && topic.len() <= NAME_LENGTH_MAX);
                if let Some(other) = topics.insert(topic, table.clone()) {
                    if template.contains("{schema}") {
                        prop_assert_eq!(&other.schema, &table.schema);
                    }
                    if template.contains("{table}") {
                        prop_assert_eq!(&other.table, &table.table);
                    }
                }
            }
        }
    }

    #[test]
    fn ddl_has_a_topic_of_its_own_or_none() {
        assert_eq!(names("{table}", Some("")).ddl_topic(&t("a", "b")).unwrap(), None);
        let own = names("{table}", Some("ddl.{schema}"));
        assert_eq!(own.ddl_topic(&t("a", "")).unwrap().as_deref(), Some("ddl.a"));
    }
}

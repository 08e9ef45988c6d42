//! What a DDL of the source means at the target.

use weir_schema::{SchemaError, Session, Step, ordinary, rewrite};
use weir_types::{DdlEvent, DdlKind, TableName};

use crate::backend::Shared;
use crate::error::{MysqlSinkError, Result};
use crate::progress::Place;
use crate::reply::ServerReply;

/// A step of a DDL with the names of the target.
pub(super) struct TargetStep {
    pub(super) kind: DdlKind,
    pub(super) sql: String,
    /// Default schema at the target, empty for none.
    pub(super) schema: String,
    pub(super) writes: Vec<Place>,
    pub(super) makes: Vec<Place>,
    pub(super) reads: Vec<Place>,
    /// It gives a number to each row that is there.
    pub(super) numbers_rows: bool,
}

const fn kind_name(kind: DdlKind) -> &'static str {
    match kind {
        DdlKind::ImplicitCreate | DdlKind::CreateTable => "CREATE TABLE",
        DdlKind::AlterTable => "ALTER TABLE",
        DdlKind::Index => "CREATE or DROP INDEX",
        DdlKind::RenameTable => "RENAME TABLE",
        DdlKind::TruncateTable => "TRUNCATE TABLE",
        DdlKind::DropTable => "DROP TABLE",
        DdlKind::CreateDatabase => "CREATE DATABASE",
        DdlKind::AlterDatabase => "ALTER DATABASE",
        DdlKind::DropDatabase => "DROP DATABASE",
        DdlKind::Other => "DDL",
    }
}

impl TargetStep {
    /// Tables and schemas that it changes.
    pub(super) fn changed(&self) -> impl Iterator<Item = &Place> {
        let new = self.makes.iter().filter(|place| !self.writes.contains(place));
        self.writes.iter().chain(new)
    }

    /// All of its tables: their rows from before it are durable.
    pub(super) fn tables(&self) -> impl Iterator<Item = &Place> {
        self.changed().chain(&self.reads)
    }

    /// Those that may have had rows before it.
    pub(super) fn there_before(&self) -> impl Iterator<Item = &Place> {
        self.writes.iter().chain(&self.reads)
    }

    fn first(&self) -> Box<str> {
        self.changed()
            .next()
            .map_or_else(Box::default, |place| subject(&place.target))
    }

    pub(super) fn name(&self) -> String {
        format!("{} of `{}`", kind_name(self.kind), self.first())
    }

    pub(super) fn refused(&self, reply: ServerReply) -> MysqlSinkError {
        MysqlSinkError::Ddl {
            kind: kind_name(self.kind),
            subject: self.first(),
            reply,
        }
    }

    pub(super) fn no_session(&self, what: &str, reply: ServerReply) -> MysqlSinkError {
        MysqlSinkError::DdlSession {
            kind: kind_name(self.kind),
            subject: self.first(),
            what: what.to_owned(),
            reply,
        }
    }

    pub(super) fn refused_numbering(&self) -> MysqlSinkError {
        MysqlSinkError::Untold {
            subject: self.first(),
            why: "it numbers the rows of a table without a primary key, whose order is not that of the source",
        }
    }

    pub(super) fn refused_twins(&self) -> MysqlSinkError {
        MysqlSinkError::Untold {
            subject: self.first(),
            why: "two tables with one definition and an engine other than InnoDB could not be told apart after a crash",
        }
    }
}

/// The steps of a DDL, as far as they concern replicated tables.
pub(super) fn steps(shared: &Shared, event: &DdlEvent) -> Result<Vec<TargetStep>> {
    let session = Session::of(event);
    let statement = |source: SchemaError| MysqlSinkError::Statement {
        subject: first_source(event),
        source,
    };
    let steps = ordinary(event.kind, &event.sql, &session).map_err(statement)?;
    let mut planned = Vec::with_capacity(steps.len());
    for step in steps {
        if let Some(step) = plan(shared, &session, step, event)? {
            planned.push(step);
        }
    }
    Ok(planned)
}

fn first_source(event: &DdlEvent) -> Box<str> {
    event
        .writes
        .first()
        .map_or_else(|| Box::from(&*event.schema), subject)
}

/// A table, or a schema, as people name it.
fn subject(name: &TableName) -> Box<str> {
    if name.table.is_empty() {
        Box::from(&*name.schema)
    } else {
        name.to_string().into()
    }
}

fn plan(shared: &Shared, session: &Session<'_>, step: Step, event: &DdlEvent) -> Result<Option<TargetStep>> {
    let config = shared.connector.config();
    let changed = || step.writes.iter().chain(&step.makes);
    let wanted = changed().filter(|name| config.wants(name)).count();
    if wanted == 0 {
        return Ok(None);
    }
    if wanted < changed().count() {
        return Err(MysqlSinkError::Untold {
            subject: first_source(event),
            why: "it moves a table into or out of what the filter lets through",
        });
    }
    let router = &config.router;
    let route_schema = |schema: &str| router.route_schema(schema).unwrap_or_else(|| schema.to_owned());
    let mut places = Vec::with_capacity(3);
    for names in [&step.writes, &step.makes, &step.reads] {
        let mut placed = Vec::with_capacity(names.len());
        for name in names {
            placed.push(place(shared, name)?);
        }
        places.push(placed);
    }
    if matches!(step.kind, DdlKind::DropDatabase | DdlKind::AlterDatabase) {
        for place in places.iter().flatten() {
            refuse_shared_schema(shared, place)?;
        }
    }
    let sql = rewrite(&step.sql, session, &|name| router.route(name), &route_schema);
    let sql = sql.map_err(|source| MysqlSinkError::Statement {
        subject: first_source(event),
        source,
    })?;
    let mut places = places.into_iter();
    let mut next = || places.next().unwrap_or_default();
    Ok(Some(TargetStep {
        kind: step.kind,
        sql,
        schema: match session.default_schema {
            "" => String::new(),
            schema => route_schema(schema),
        },
        writes: next(),
        makes: next(),
        reads: next(),
        numbers_rows: step.numbers_rows,
    }))
}

fn place(shared: &Shared, name: &TableName) -> Result<Place> {
    let router = &shared.connector.config().router;
    let target = if name.table.is_empty() {
        let schema = router.route_schema(&name.schema);
        let schema = schema.ok_or_else(|| MysqlSinkError::Untold {
            subject: subject(name),
            why: "the routes take the tables of the database to several",
        })?;
        TableName::new(schema, "")
    } else {
        router.route(name)
    };
    Ok(Place {
        source: name.clone(),
        target,
    })
}

/// A schema at the target that holds tables of another one of the source is not dropped.
fn refuse_shared_schema(shared: &Shared, place: &Place) -> Result<()> {
    if place.target.table.is_empty() && shared.schema_is_shared(&place.source, &place.target) {
        return Err(MysqlSinkError::Untold {
            subject: subject(&place.source),
            why: "the routes take tables of other databases to the same one at the target",
        });
    }
    Ok(())
}

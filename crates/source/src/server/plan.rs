//! Whether a server can give what comes behind a place, and how it is asked.

use weir_types::{Flavor, GtidSet, SourceIdentity};

use super::facts::Facts;
use super::place::Place;
use crate::error::{Result, SourceError};

/// What is asked of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dump {
    /// Everything that is not in the set.
    Gtids(GtidSet),
    /// Everything from a place on.
    File(Place),
}

/// Where we are: what was read, and the place in the files of a server.
pub(crate) struct Here<'a> {
    pub(crate) identity: &'a SourceIdentity,
    pub(crate) place: &'a Place,
    pub(crate) seen: &'a GtidSet,
}

/// Decides how to go on behind a place at a server that may be another one than before.
///
/// # Errors
/// `TransactionsLost`, `Behind` (another server that may catch up), `PurgedGtids`,
/// `OtherSource`.
pub(crate) fn plan(here: &Here<'_>, facts: &Facts) -> Result<Dump> {
    let is_same = *here.identity == facts.identity;
    if !facts.by_gtid() {
        if !is_same {
            return Err(SourceError::OtherSource);
        }
        return Ok(Dump::File(here.place.clone()));
    }
    let lacking = here.seen.difference(&facts.executed);
    if !lacking.is_empty() {
        let missing = lacking.to_string();
        return Err(if is_same {
            SourceError::TransactionsLost { missing }
        } else {
            SourceError::Behind { missing }
        });
    }
    check_purged(here.seen, facts)?;
    if here.seen.is_empty() && !is_same {
        // Nothing tells that the two have anything in common.
        return Err(SourceError::OtherSource);
    }
    Ok(Dump::Gtids(here.seen.clone()))
}

/// Whether everything behind the set is still there. MariaDB has no list of what is
/// gone; its server finds out when it is asked.
fn check_purged(seen: &GtidSet, facts: &Facts) -> Result<()> {
    let gone = match facts.flavor {
        Flavor::Mysql => facts.purged.difference(seen),
        Flavor::Mariadb => GtidSet::default(),
    };
    if gone.is_empty() {
        return Ok(());
    }
    Err(SourceError::PurgedGtids {
        missing: gone.to_string(),
    })
}

/// Checks a set that the configuration names as the start.
///
/// # Errors
/// `UnknownStart`, `PurgedGtids`; `Setting` if the server has no GTIDs.
pub(crate) fn check_start(set: &GtidSet, facts: &Facts) -> Result<()> {
    if !facts.by_gtid() {
        return Err(SourceError::Setting {
            setting: "gtid_mode",
            expected: "ON",
            actual: facts.variable("gtid_mode").to_owned(),
        });
    }
    let unknown = set.difference(&facts.executed);
    if !unknown.is_empty() {
        let missing = unknown.to_string();
        return Err(SourceError::UnknownStart { missing });
    }
    check_purged(set, facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::facts::tests::facts;

    const U: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const V: &str = "4e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn set(text: &str) -> GtidSet {
        GtidSet::parse(&text.replace('U', U).replace('V', V)).expect("a set")
    }

    fn mysql(executed: &str, purged: &str, mode: &str) -> Facts {
        let (executed, purged) = (set(executed).to_string(), set(purged).to_string());
        facts(
            Flavor::Mysql,
            &executed,
            &[("gtid_purged", &purged), ("gtid_mode", mode), ("server_uuid", U)],
        )
    }

    fn decide(seen: &str, is_same: bool, facts: &Facts) -> Result<Dump> {
        let identity = if is_same {
            facts.identity.clone()
        } else {
            SourceIdentity::Digest(1)
        };
        let place = Place::new("b.000001", 400);
        plan(
            &Here {
                identity: &identity,
                place: &place,
                seen: &set(seen),
            },
            facts,
        )
    }

    #[test]
    fn sets_are_kept_with_their_gaps() {
        let on = mysql("U:1-20", "U:1-3", "ON");
        assert_eq!(
            decide("U:1-7:9-10", true, &on).expect("goes on"),
            Dump::Gtids(set("U:1-7:9-10"))
        );
        // Another server that has all of it and nothing purged beyond it.
        assert!(decide("U:1-7", false, &on).is_ok());
    }

    #[test]
    fn what_is_purged_or_lost_is_named() {
        let on = mysql("U:1-20", "U:1-9", "ON");
        let error = decide("U:1-7", true, &on).expect_err("purged");
        assert!(error.to_string().contains(&format!("{U}:8-9")), "{error}");
        let error = decide("U:1-22", true, &on).expect_err("lost");
        assert!(
            matches!(&error, SourceError::TransactionsLost { missing } if *missing == format!("{U}:21-22"))
        );
        let error = decide("U:1-20,V:1", false, &on).expect_err("behind");
        assert!(matches!(&error, SourceError::Behind { missing } if *missing == format!("{V}:1")));
    }

    #[test]
    fn files_are_those_of_one_server() {
        for mode in ["OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE"] {
            let off = mysql("U:1-20", "", mode);
            assert_eq!(
                decide("U:1-4", true, &off).expect("goes on"),
                Dump::File(Place::new("b.000001", 400))
            );
            assert!(matches!(
                decide("U:1-4", false, &off),
                Err(SourceError::OtherSource)
            ));
        }
    }

    #[test]
    fn domains_count_by_sequence() {
        let maria = facts(Flavor::Mariadb, "0-1-9,7-1-3", &[]);
        let go = |seen: &str, same| decide(seen, same, &maria);
        assert_eq!(go("0-1-9", false).expect("goes on"), Dump::Gtids(set("0-1-9")));
        assert!(matches!(go("0-2-10", false), Err(SourceError::Behind { .. })));
        assert!(matches!(
            go("8-1-1", true),
            Err(SourceError::TransactionsLost { .. })
        ));
        assert!(go("", true).is_ok());
        assert!(matches!(go("", false), Err(SourceError::OtherSource)));
    }

    #[test]
    fn a_start_must_be_known_and_there() {
        let on = mysql("U:1-20", "U:1-5", "ON");
        assert!(check_start(&set("U:1-10"), &on).is_ok());
        assert!(matches!(
            check_start(&set("U:1-4"), &on),
            Err(SourceError::PurgedGtids { .. })
        ));
        assert!(matches!(
            check_start(&set("U:1-21"), &on),
            Err(SourceError::UnknownStart { .. })
        ));
        assert!(matches!(
            check_start(&set("U:1"), &mysql("U:1-2", "", "OFF")),
            Err(SourceError::Setting { .. })
        ));
    }
}

//! The name that we go by among the replicas of a server, so that our own connection
//! from before a crash is told from another replica's.

use weir_types::Flavor;

use super::ServerOptions;
use crate::digest::Digest;

/// Bits of the digest that stand in the last part of the uuid.
const TAIL_BITS: u32 = 48;

/// Who has our id in the list of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// Nobody.
    Free,
    /// A connection of the same changefeed.
    Own,
    /// Another replica.
    Other,
    /// The account may not see the list.
    Hidden,
}

/// Names of a changefeed with its server id, the same in every run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alias {
    /// MySQL: uuid of a replica.
    pub(crate) uuid: String,
    /// Host that a replica reports; MariaDB has no uuid.
    pub(crate) host: String,
}

impl Alias {
    pub(crate) fn of(options: &ServerOptions) -> Self {
        let mut digest = Digest::new();
        digest.add(options.changefeed.as_bytes());
        digest.add(&[0]);
        digest.add(&options.server_id.to_le_bytes());
        let number = digest.value();
        let (head, tail) = (number >> TAIL_BITS, number & ((1 << TAIL_BITS) - 1));
        Self {
            // "weir" in ASCII, and the digest.
            uuid: format!("77656972-{head:04x}-4000-8000-{tail:012x}"),
            host: format!("weir-{number:016x}"),
        }
    }

    /// What the list of a server shows of it.
    pub(crate) fn shown(&self, flavor: Flavor) -> &str {
        match flavor {
            Flavor::Mysql => &self.uuid,
            Flavor::Mariadb => &self.host,
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_types::Flavor;

    use super::*;
    use crate::server::session::tests::options;

    #[test]
    fn a_changefeed_keeps_its_names_and_shares_them_with_no_other() {
        let ours = Alias::of(&options());
        assert_eq!(ours, Alias::of(&options()));
        let mut other = options();
        other.changefeed = "shop2".to_owned();
        assert_ne!(ours, Alias::of(&other));
        let mut other = options();
        other.server_id += 1;
        assert_ne!(ours.shown(Flavor::Mysql), Alias::of(&other).shown(Flavor::Mysql));
        assert_eq!(ours.uuid.len(), 36);
        assert_eq!(ours.host.len(), 21);
    }
}

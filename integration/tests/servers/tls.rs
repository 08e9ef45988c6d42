//! Encryption of the connections to either end: what each mode takes, and that the rest is one clear error.

use std::path::Path;
use std::time::Duration;

use weir_integration::{Certificate, Changefeed, End, Kind, Pair, TestServer};

const LIMIT: Duration = Duration::from_secs(60);
const MODES: [&str; 5] = [
    "disabled",
    "preferred",
    "required",
    "verify-ca",
    "verify-identity",
];
/// What the tests' servers are reached by.
const HOST: &str = "127.0.0.1";

/// Server arguments that present `own`, and take clients that `authority` has signed.
fn server(kind: Kind, authority: &Certificate, own: &Certificate) -> TestServer {
    let arguments = [
        format!("--ssl-ca={}", authority.cert_file.display()),
        format!("--ssl-cert={}", own.cert_file.display()),
        format!("--ssl-key={}", own.key_file.display()),
    ];
    TestServer::own(kind, &arguments.each_ref().map(String::as_str)).unwrap()
}

/// A pair one end of which is under test, with a table whose rows go from run to run.
struct Ends {
    pair: Pair,
    feed: Changefeed,
    end: End,
    /// The changefeed file without TLS.
    plain: String,
    rows: u32,
}

impl Ends {
    fn new(tested: TestServer, kind: Kind, end: End) -> Self {
        let other = TestServer::own(kind, &[]).unwrap();
        let pair = match end {
            End::Source => Pair::of(tested, other),
            End::Sink => Pair::of(other, tested),
        }
        .unwrap();
        let main = &pair.names.main;
        let mut source = pair.source.client().unwrap();
        source
            .run_all([
                format!("CREATE DATABASE {main} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"),
                format!("CREATE TABLE {main}.t (id INT PRIMARY KEY)"),
            ])
            .unwrap();
        let feed = pair.feed("").unwrap();
        let plain = std::fs::read_to_string(&feed.file).unwrap();
        Self {
            pair,
            feed,
            end,
            plain,
            rows: 0,
        }
    }

    fn tested(&self) -> &TestServer {
        match self.end {
            End::Source => &self.pair.source,
            End::Sink => &self.pair.sink,
        }
    }

    fn write(&self, user: &str, lines: &str) {
        let section = match self.end {
            End::Source => "source.tls",
            End::Sink => "sink.tls",
        };
        let uri = self.tested().uri();
        let plain = self
            .plain
            .replace(uri, &uri.replace("root:", &format!("{user}:")));
        std::fs::write(&self.feed.file, format!("{plain}\n[{section}]\n{lines}\n")).unwrap();
    }

    /// A row that is written now arrives.
    fn works(&mut self, user: &str, lines: &str) {
        self.write(user, lines);
        self.rows += 1;
        let main = &self.pair.names.main;
        let mut source = self.pair.source.client().unwrap();
        source
            .run(&format!("INSERT INTO {main}.t VALUES ({})", self.rows))
            .unwrap();
        let ran = weir_integration::pair::run_to_end(&self.feed);
        assert!(ran.is_ok(), "{user} {lines}: {ran:?}");
        let mut sink = self.pair.sink.client().unwrap();
        let count = sink.number(&format!("SELECT COUNT(*) FROM {main}.t")).unwrap();
        assert_eq!(count, u64::from(self.rows), "{lines}");
    }

    /// The run ends at once, for good, with a code and a message that has one of `words`.
    fn refused(&self, user: &str, lines: &str, words: &[&str]) {
        self.write(user, lines);
        let finished = self
            .feed
            .start(&["--until", "caught-up"])
            .unwrap()
            .finish(LIMIT)
            .unwrap();
        finished.assert_code(3);
        let (code, message) = finished.error();
        println!("{:?} {user} {lines:?}: {code}: {message}", self.end);
        assert!(
            words.iter().any(|word| message.contains(word)),
            "{user} {lines}: {message}"
        );
    }
}

fn mode(mode: &str, ca: Option<&Certificate>) -> String {
    mode_with(mode, ca.map(|ca| ca.cert_file.as_path()))
}

fn mode_with(mode: &str, ca: Option<&Path>) -> String {
    let ca = ca.map(|ca| format!("ca = \"{}\"\n", ca.display()));
    format!("mode = \"{mode}\"\n{}", ca.unwrap_or_default())
}

fn with_client(lines: &str, client: &Certificate) -> String {
    let (cert, key) = (client.cert_file.display(), client.key_file.display());
    format!("{lines}cert = \"{cert}\"\nkey = \"{key}\"\n")
}

fn all_modes(kind: Kind, end: End) {
    let _machine = crate::shared();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let authority = Certificate::authority(at, "authority").unwrap();
    let stranger = Certificate::authority(at, "stranger").unwrap();
    let own = authority.sign(at, "server", HOST).unwrap();
    let client = authority.sign(at, "client", "client.example").unwrap();
    let strange_client = stranger.sign(at, "strange-client", "client.example").unwrap();
    let mut ends = Ends::new(server(kind, &authority, &own), kind, end);
    for name in MODES {
        ends.works("root", &mode(name, Some(&authority)));
    }
    ends.works("root", &mode("required", Some(&stranger)));
    let check = ["certificate"];
    ends.refused("root", &mode("verify-ca", Some(&stranger)), &check);
    ends.refused("root", &mode("verify-identity", Some(&stranger)), &check);
    ends.refused("root", &mode("verify-ca", None), &check);

    // A user that has to present a certificate.
    let mut admin = ends.tested().client().unwrap();
    admin
        .run_all([
            "CREATE USER 'holder'@'%' IDENTIFIED BY 'weir' REQUIRE X509",
            "GRANT ALL ON *.* TO 'holder'@'%'",
        ])
        .unwrap();
    let verify = mode("verify-identity", Some(&authority));
    ends.refused("holder", &verify, &["holder"]);
    ends.works("holder", &with_client(&verify, &client));
    ends.works("holder", &with_client(&mode("required", None), &client));
    ends.refused("holder", &with_client(&verify, &strange_client), &["certificate"]);
    let nobodys = folder.path().join("nobodys.pem");
    let missing = mode_with("verify-ca", Some(&nobodys));
    ends.refused("root", &missing, &["nobodys.pem"]);
}

fn another_host(kind: Kind, end: End) {
    let _machine = crate::shared();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let authority = Certificate::authority(at, "authority").unwrap();
    let own = authority.sign(at, "server", "elsewhere.example").unwrap();
    let mut ends = Ends::new(server(kind, &authority, &own), kind, end);
    ends.works("root", &mode("verify-ca", Some(&authority)));
    let refused = mode("verify-identity", Some(&authority));
    ends.refused("root", &refused, &["host", "certificate"]);
}

fn a_server_without_tls(kind: Kind, argument: &str, end: End) {
    let _machine = crate::shared();
    let mut ends = Ends::new(TestServer::own(kind, &[argument]).unwrap(), kind, end);
    ends.works("root", &mode("preferred", None));
    ends.refused("root", &mode("required", None), &["TLS"]);
    ends.refused("root", &mode("verify-ca", None), &["TLS"]);
}

#[test]
fn modes_at_a_mysql_sink() {
    all_modes(Kind::Mysql, End::Sink);
}

#[test]
fn modes_at_a_mariadb_sink() {
    all_modes(Kind::Mariadb118, End::Sink);
}

#[test]
fn modes_at_a_mysql_source() {
    all_modes(Kind::Mysql, End::Source);
}

#[test]
fn modes_at_a_mariadb_source() {
    all_modes(Kind::Mariadb118, End::Source);
}

#[test]
fn certificates_of_another_host() {
    another_host(Kind::Mysql, End::Sink);
    another_host(Kind::Mariadb118, End::Source);
}

#[test]
fn servers_that_offer_no_tls() {
    a_server_without_tls(Kind::Mysql, "--tls-version=", End::Sink);
    a_server_without_tls(Kind::Mariadb118, "--skip-ssl", End::Sink);
    a_server_without_tls(Kind::Mysql, "--tls-version=", End::Source);
}

/// The authority that MySQL makes for itself.
#[test]
fn certificates_that_mysql_makes_for_itself() {
    let _machine = crate::shared();
    let tested = TestServer::own(Kind::Mysql, &[]).unwrap();
    let mut ends = Ends::new(tested, Kind::Mysql, End::Sink);
    let data = ends.pair.sink.process().unwrap().data_dir();
    ends.works("root", &mode_with("verify-ca", Some(&data.join("ca.pem"))));
    let identity = mode_with("verify-identity", Some(&data.join("ca.pem")));
    ends.refused("root", &identity, &["host", "certificate"]);
    let required = mode("required", None);
    let (cert, key) = (data.join("client-cert.pem"), data.join("client-key.pem"));
    let lines = format!(
        "{required}cert = \"{}\"\nkey = \"{}\"\n",
        cert.display(),
        key.display()
    );
    let mut admin = ends.pair.sink.client().unwrap();
    admin.run("ALTER USER root@'127.0.0.1' REQUIRE X509").unwrap();
    ends.write("root", &required);
    ends.feed.catch_up().unwrap().assert_code(3);
    ends.write("root", &lines);
    weir_integration::pair::run_to_end(&ends.feed).unwrap();
}

//! `docker-compose.yml` is valid, complete, and is what the documentation says. There is no engine to start it here:
//! `docker-compose config` resolves and checks the file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use weir_test_servers::{apt_install, workspace_root};

const SERVICES: [&str; 7] = [
    "mysql-source",
    "mysql-sink",
    "mariadb-source",
    "mariadb-sink",
    "kafka",
    "weir",
    "prometheus",
];

fn resolved(root: &Path) -> String {
    apt_install("docker-compose", "docker-compose").unwrap();
    let output = Command::new("docker-compose")
        .args(["-f", "docker-compose.yml", "config"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Items of lists: `- text`.
fn items(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim().strip_prefix("- "))
}

/// Published ports: `127.0.0.1:13306:3306/tcp`.
fn published(text: &str) -> Vec<(u16, u16)> {
    items(text)
        .filter_map(|item| {
            let (host, inner) = item
                .strip_prefix("127.0.0.1:")?
                .strip_suffix("/tcp")?
                .split_once(':')?;
            Some((host.parse().ok()?, inner.parse().ok()?))
        })
        .collect()
}

#[test]
fn the_file_is_valid_and_documented() {
    let root = workspace_root().unwrap();
    let text = resolved(&root);
    let services: BTreeSet<&str> = text
        .split_once("services:\n")
        .unwrap()
        .1
        .lines()
        .take_while(|line| line.starts_with(' '))
        .filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')))
        .map(|line| line.trim_end_matches(':'))
        .collect();
    assert_eq!(services, BTreeSet::from(SERVICES));

    // Folders and files of this repository that containers see.
    let mounted: Vec<PathBuf> = items(&text)
        .filter(|item| item.starts_with('/'))
        .map(|item| PathBuf::from(item.split(':').next().unwrap()))
        .collect();
    assert!(mounted.len() >= 2, "{mounted:?}");
    for path in &mounted {
        assert!(path.exists(), "{} is mounted and not there", path.display());
    }
    let context = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("context: "))
        .unwrap();
    assert!(Path::new(context).join("Dockerfile").exists());

    let ports = published(&text);
    assert_eq!(ports.len(), SERVICES.len(), "{ports:?}");
    let docs = std::fs::read_to_string(root.join("docs/testing.md")).unwrap();
    for (host, _) in &ports {
        assert!(
            docs.contains(&format!("127.0.0.1:{host}")),
            "port {host} is not in docs/testing.md"
        );
    }
    assert!(
        text.matches("published").count() == 0,
        "ports in a form that this test does not read"
    );
}

/// One port for the metrics: the changefeed listens on it, the image exposes it, Prometheus scrapes it.
#[test]
fn the_parts_fit_together() {
    let root = workspace_root().unwrap();
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let text = resolved(&root);
    let port = 9464;
    assert!(published(&text).contains(&(port, port)));
    assert!(read("config/compose/changefeed.toml").contains(&format!("listen = \"0.0.0.0:{port}\"")));
    assert!(read("config/compose/prometheus.yml").contains(&format!("\"weir:{port}\"")));
    let image = read("Dockerfile");
    assert!(image.contains(&format!("EXPOSE {port}")));
    let release = format!("rust:{}-bookworm", env!("CARGO_PKG_RUST_VERSION"));
    assert!(
        image.contains(&release),
        "the image does not build with {release}"
    );
    let command = image.lines().find(|line| line.starts_with("CMD")).unwrap();
    for mount in ["/etc/weir/changefeed.toml", "/var/lib/weir"] {
        assert!(command.contains(mount) && text.contains(mount), "{mount}");
    }
}

/// The changefeed is valid: the only thing wrong with it here is that its servers have no address.
#[test]
fn the_changefeed_is_valid() {
    let file = workspace_root().unwrap().join("config/compose/changefeed.toml");
    let output = Command::new(weir_integration::weir())
        .args(["check", &file.to_string_lossy(), "--output", "json"])
        .env("WEIR_SOURCE_PASSWORD", "weir")
        .env("WEIR_SINK_PASSWORD", "weir")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("mysql-source"), "{text}");
}

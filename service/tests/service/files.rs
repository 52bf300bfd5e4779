//! The files of docs/kubernetes and docs/monitoring, compared with the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use saphyr::{LoadableYamlNode, Yaml};
use service::{DATABASE_WAIT, DRAIN, LAST_ANSWERS, SESSION_TIMEOUT, WAIT};

const DEPLOYMENT: &str = include_str!("../../../docs/kubernetes/deployment.yaml");
const DASHBOARD: &str = include_str!("../../../docs/monitoring/dashboard.json");
const ALERTS: &str = include_str!("../../../docs/monitoring/alerts.yaml");
const METRICS: &str = include_str!("../../../docs/observability.md");
const OPERATING: &str = include_str!("../../../docs/operating.md");

fn template() -> Yaml<'static> {
    let deployment = Yaml::load_from_str(DEPLOYMENT).unwrap().swap_remove(0);
    assert_eq!(deployment["kind"].as_str(), Some("Deployment"));
    deployment["spec"]["template"].clone()
}

fn pod() -> Yaml<'static> {
    template()["spec"].clone()
}

/// The whole stop, with the closing of the session by servers that do not answer, fits into the
/// grace period.
pub(crate) fn grace() {
    let pod = pod();
    let seconds = |number: &Yaml<'_>| u64::try_from(number.as_integer().unwrap()).unwrap();
    let pre_stop = seconds(&pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]);
    let stop = DRAIN.as_secs() + SESSION_TIMEOUT.as_secs() + LAST_ANSWERS.as_secs();
    let grace = seconds(&pod["terminationGracePeriodSeconds"]);
    assert!(
        pre_stop > 0 && pre_stop + stop < grace,
        "{pre_stop} + {stop} < {grace}"
    );
    assert!(grace <= 30);
    assert!(
        WAIT + 2 * DATABASE_WAIT < DRAIN,
        "an order that waits and then sells ends within a drain"
    );
}

pub(crate) fn probes() {
    let container = pod()["containers"][0].clone();
    let path = |probe: &str| {
        container[probe]["httpGet"]["path"]
            .as_str()
            .map(str::to_owned)
    };
    assert_eq!(path("livenessProbe").as_deref(), Some("/livez"));
    assert_eq!(path("readinessProbe").as_deref(), Some("/readyz"));
    let port = &container["ports"][0];
    let listen = container["env"].as_sequence().unwrap().iter();
    let listen = listen
        .clone()
        .find(|variable| variable["name"].as_str() == Some("LISTEN"))
        .unwrap();
    let number = port["containerPort"].as_integer().unwrap();
    assert_eq!(
        listen["value"].as_str().unwrap(),
        format!("0.0.0.0:{number}")
    );
    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(
            container[probe]["httpGet"]["port"].as_str(),
            port["name"].as_str()
        );
    }
    let scraped = template()["metadata"]["annotations"].clone();
    assert_eq!(scraped["prometheus.io/path"].as_str(), Some("/metrics"));
    assert_eq!(
        scraped["prometheus.io/port"].as_str(),
        Some(number.to_string().as_str())
    );
}

/// The names of this crate's metrics in a text, without what a histogram appends.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("zookeeper_recipes_"));
    names
        .map(|name| name.trim_end_matches("_bucket").to_owned())
        .collect()
}

/// Those that docs/observability.md lists, which a test of the library compares with the reported
/// ones.
fn listed() -> BTreeSet<String> {
    let rows = METRICS
        .lines()
        .filter(|line| line.starts_with("| `zookeeper_recipes_"));
    metrics(&rows.collect::<Vec<_>>().join("\n"))
}

/// The queries of the dashboard.
pub(crate) fn queries() -> Vec<String> {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    targets
        .map(|target| target["expr"].as_str().unwrap().to_owned())
        .collect()
}

pub(crate) fn dashboard() {
    let mut shown = BTreeSet::new();
    for query in queries() {
        let of_query = metrics(&query);
        assert!(!of_query.is_empty(), "{query}");
        shown.extend(of_query);
    }
    assert_eq!(shown, listed(), "each metric is shown, and no other");
}

/// A client that was closed and a lease that was over lost nothing that its holder had not given
/// up.
pub(crate) fn losses() {
    for text in [DASHBOARD, ALERTS, OPERATING] {
        let queries: Vec<&str> = text
            .split("zookeeper_recipes_lock_losses_total{")
            .skip(1)
            .collect();
        assert!(!queries.is_empty() && !text.contains("zookeeper_recipes_lock_losses_total["));
        for query in queries {
            let labels = query.split('}').next().unwrap().replace('\\', "");
            assert!(
                labels.ends_with("reason!~\"closed|lease_over\""),
                "{labels}"
            );
        }
    }
}

pub(crate) fn alerts() {
    let alerts = Yaml::load_from_str(ALERTS).unwrap().swap_remove(0);
    for rule in alerts["groups"][0]["rules"].as_sequence().unwrap() {
        let of_rule = metrics(rule["expr"].as_str().unwrap());
        assert!(
            !of_rule.is_empty() && of_rule.is_subset(&listed()),
            "{of_rule:?}"
        );
        assert!(
            rule["annotations"]["summary"]
                .as_str()
                .is_some_and(|summary| !summary.is_empty())
        );
    }
}

/// The rules are run by Prometheus: a first loss fires, and the end of a client does not.
pub(crate) fn first_loss(promtool: PathBuf) {
    let directory: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../docs/monitoring"]
        .iter()
        .collect();
    let run = move |file: &Path| {
        let run = Command::new(&promtool)
            .args(["test", "rules"])
            .arg(file)
            .output()
            .unwrap();
        let said = [run.stdout, run.stderr]
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .concat();
        (run.status.success(), said)
    };
    let (passed, said) = run(&directory.join("alerts_test.yaml"));
    assert!(passed, "{said}");

    // And it would say so if no alert fired.
    let copy = tempfile::tempdir().unwrap();
    let without = ALERTS.replace(
        "zookeeper_recipes_lock_losses_total",
        "zookeeper_recipes_no_such_total",
    );
    fs::write(copy.path().join("alerts.yaml"), without).unwrap();
    fs::copy(
        directory.join("alerts_test.yaml"),
        copy.path().join("alerts_test.yaml"),
    )
    .unwrap();
    let (passed, said) = run(&copy.path().join("alerts_test.yaml"));
    assert!(!passed && said.contains("LockLost"), "{said}");
}

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

fn pod() -> Yaml<'static> {
    let deployment = Yaml::load_from_str(DEPLOYMENT).unwrap().swap_remove(0);
    assert_eq!(deployment["kind"].as_str(), Some("Deployment"));
    deployment["spec"]["template"]["spec"].clone()
}

/// The whole stop, with the closing of the session by servers that do not answer, fits into the grace period.
pub(crate) fn grace() {
    let pod = pod();
    let seconds = |number: &Yaml<'_>| u64::try_from(number.as_integer().unwrap()).unwrap();
    let pre_stop = seconds(&pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]);
    let stop = DRAIN.as_secs() + SESSION_TIMEOUT.as_secs() + LAST_ANSWERS.as_secs();
    let grace = seconds(&pod["terminationGracePeriodSeconds"]);
    assert!(pre_stop > 0 && pre_stop + stop < grace, "{pre_stop} + {stop} < {grace}");
    assert!(grace <= 30);
    assert!(WAIT + 2 * DATABASE_WAIT < DRAIN, "an order that waits and then sells ends within a drain");
}

pub(crate) fn probes() {
    let container = pod()["containers"][0].clone();
    let path = |probe: &str| container[probe]["httpGet"]["path"].as_str().map(str::to_owned);
    assert_eq!(path("livenessProbe").as_deref(), Some("/livez"));
    assert_eq!(path("readinessProbe").as_deref(), Some("/readyz"));
    let port = &container["ports"][0];
    let listen = container["env"].as_sequence().unwrap().iter();
    let listen = listen.clone().find(|variable| variable["name"].as_str() == Some("LISTEN")).unwrap();
    let number = port["containerPort"].as_integer().unwrap();
    assert_eq!(listen["value"].as_str().unwrap(), format!("0.0.0.0:{number}"));
    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"].as_str(), port["name"].as_str());
    }
}

/// The names of this crate's metrics in a text, without what a histogram appends.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("zookeeper_recipes_"));
    names.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
}

/// Those that docs/observability.md lists, which a test of the library compares with the reported ones.
fn listed() -> BTreeSet<String> {
    let rows = METRICS.lines().filter(|line| line.starts_with("| `zookeeper_recipes_"));
    metrics(&rows.collect::<Vec<_>>().join("\n"))
}

pub(crate) fn dashboard() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut shown = BTreeSet::new();
    for panel in panels {
        for target in panel["targets"].as_array().unwrap() {
            let of_target = metrics(target["expr"].as_str().unwrap());
            assert!(!of_target.is_empty(), "{target}");
            shown.extend(of_target);
        }
    }
    assert_eq!(shown, listed(), "each metric is shown, and no other");
}

pub(crate) fn alerts() {
    let alerts = Yaml::load_from_str(ALERTS).unwrap().swap_remove(0);
    for rule in alerts["groups"][0]["rules"].as_sequence().unwrap() {
        let of_rule = metrics(rule["expr"].as_str().unwrap());
        assert!(!of_rule.is_empty() && of_rule.is_subset(&listed()), "{of_rule:?}");
        assert!(rule["annotations"]["summary"].as_str().is_some_and(|summary| !summary.is_empty()));
    }
}

/// The rules are run by Prometheus: a first loss fires, and the end of a client does not.
pub(crate) fn first_loss(promtool: PathBuf) {
    let directory: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../docs/monitoring"].iter().collect();
    let run = move |file: &Path| {
        let run = Command::new(&promtool).args(["test", "rules"]).arg(file).output().unwrap();
        let said = [run.stdout, run.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        (run.status.success(), said)
    };
    let (passed, said) = run(&directory.join("alerts_test.yaml"));
    assert!(passed, "{said}");

    // And it would say so if no alert fired.
    let copy = tempfile::tempdir().unwrap();
    let without = ALERTS.replace("zookeeper_recipes_lock_losses_total", "zookeeper_recipes_no_such_total");
    fs::write(copy.path().join("alerts.yaml"), without).unwrap();
    fs::copy(directory.join("alerts_test.yaml"), copy.path().join("alerts_test.yaml")).unwrap();
    let (passed, said) = run(&copy.path().join("alerts_test.yaml"));
    assert!(!passed && said.contains("LockLost"), "{said}");
}

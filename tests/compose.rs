//! Checks, by reading `docker-compose.yml`, that it describes the ensemble that the documentation
//! promises. Not every machine has an engine that could run it.
#![expect(clippy::expect_used, clippy::panic, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};

use saphyr::{LoadableYamlNode, Yaml};

const FILE: &str = include_str!("../docker-compose.yml");

/// Returns the file and its services, with merge keys (`<<`) resolved.
fn compose() -> (Yaml<'static>, BTreeMap<String, Yaml<'static>>) {
    let file = Yaml::load_from_str(FILE).expect("YAML").swap_remove(0);
    let services = file["services"].as_mapping().expect("services");
    let services = services
        .iter()
        .map(|(name, service)| (text(name), merged(service)))
        .collect();
    (file, services)
}

/// Resolves merge keys, which the YAML reader leaves unresolved; a key of the mapping itself wins.
fn merged(node: &Yaml<'static>) -> Yaml<'static> {
    let Some(own) = node.as_mapping() else {
        return node.clone();
    };
    let mut all = own.clone();
    let base = all.remove(&Yaml::value_from_str("<<"));
    for (key, value) in base
        .as_ref()
        .and_then(|b| b.as_mapping())
        .into_iter()
        .flatten()
    {
        if !all.contains_key(key) {
            all.insert(key.clone(), value.clone());
        }
    }
    Yaml::Mapping(
        all.into_iter()
            .map(|(key, value)| (key, merged(&value)))
            .collect(),
    )
}

fn text(node: &Yaml<'_>) -> String {
    node.as_str()
        .unwrap_or_else(|| panic!("{node:?} is not a string"))
        .to_owned()
}

fn texts(node: &Yaml<'_>) -> Vec<String> {
    node.as_sequence()
        .unwrap_or_else(|| panic!("{node:?} is not a list"))
        .iter()
        .map(text)
        .collect()
}

#[test]
fn three_members_stay_up() {
    let (_, services) = compose();
    let names: Vec<_> = services.keys().map(String::as_str).collect();
    assert_eq!(names, ["zoo1", "zoo2", "zoo3"]);
    for (name, service) in &services {
        assert_eq!(text(&service["image"]), "zookeeper:3.9");
        assert_eq!(text(&service["restart"]), "unless-stopped");
        assert_eq!(&text(&service["hostname"]), name);
    }
}

#[test]
fn members_know_themselves_and_the_others() {
    let (_, services) = compose();
    let mut lists = BTreeSet::new();
    for (index, (name, service)) in services.iter().enumerate() {
        let environment = &service["environment"];
        let servers = text(&environment["ZOO_SERVERS"]);
        let id = text(&environment["ZOO_MY_ID"]);
        assert_eq!(id, (index + 1).to_string());
        let own = format!("server.{id}={name}:2888:3888;2181");
        assert!(
            servers.split(' ').any(|server| server == own),
            "{own} not in {servers}"
        );
        assert_eq!(servers.split(' ').count(), services.len());
        lists.insert(servers);
    }
    assert_eq!(lists.len(), 1, "the members disagree: {lists:?}");
}

#[test]
fn extended_types_and_words_are_on() {
    for service in compose().1.values() {
        let environment = &service["environment"];
        assert_eq!(
            text(&environment["JVMFLAGS"]),
            "-Dzookeeper.extendedTypesEnabled=true"
        );
        assert_eq!(text(&environment["ZOO_4LW_COMMANDS_WHITELIST"]), "*");
    }
}

#[test]
fn only_the_loopback_interface_is_published() {
    let (_, services) = compose();
    let ports: Vec<_> = services
        .values()
        .flat_map(|service| texts(&service["ports"]))
        .collect();
    assert_eq!(
        ports,
        [
            "127.0.0.1:2181:2181",
            "127.0.0.1:2182:2181",
            "127.0.0.1:2183:2181"
        ]
    );
}

#[test]
fn members_have_named_volumes() {
    let (file, services) = compose();
    let declared: BTreeSet<_> = file["volumes"]
        .as_mapping()
        .expect("volumes")
        .keys()
        .map(text)
        .collect();
    let mut used = BTreeSet::new();
    for service in services.values() {
        let volumes = texts(&service["volumes"]);
        let places: Vec<_> = volumes
            .iter()
            .filter_map(|v| Some(v.split_once(':')?.1))
            .collect();
        assert_eq!(places, ["/data", "/datalog"]);
        for volume in &volumes {
            let (name, _) = volume.split_once(':').expect("name:place");
            assert!(used.insert(name.to_owned()), "{name} has two owners");
        }
    }
    assert_eq!(used, declared);
}

/// The command itself is tried on a real server, in `test-support`.
#[test]
fn every_member_has_a_health_check() {
    for service in compose().1.values() {
        let check = &service["healthcheck"];
        assert_eq!(texts(&check["test"])[..3], ["CMD", "bash", "-c"]);
        assert!(check["retries"].as_integer().is_some_and(|n| n > 1));
        for duration in ["interval", "timeout", "start_period"] {
            assert!(
                text(&check[duration]).ends_with('s'),
                "{duration} has no unit"
            );
        }
    }
}

#[test]
fn comment_names_the_published_ports() {
    assert!(FILE.contains("ZK_CONNECT=127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183 "));
}

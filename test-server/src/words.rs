//! The four-letter words, in ZooKeeper's formats.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use crate::server::Shared;
use crate::state::{State, Version};
use crate::wire::opcode;

/// Returns the reply to a word; `None` if the four bytes are not one.
pub(crate) fn answer(shared: &Shared, head: [u8; 4]) -> Option<String> {
    if !head.is_ascii() {
        return None;
    }
    let port = shared.port.load(Ordering::Relaxed);
    shared.with(|state| match &head {
        b"ruok" => Some("imok".to_owned()),
        b"isro" => Some("rw".to_owned()),
        b"srvr" => Some(format!("{}{}", version(state), summary(state))),
        b"stat" => {
            let clients: String = clients(state, false);
            Some(format!("{}Clients:\n{clients}\n{}", version(state), summary(state)))
        }
        b"cons" => Some(format!("{}\n", clients(state, true))),
        b"mntr" => Some(monitor(state)),
        b"conf" => Some(configuration(state, port)),
        b"wchs" => Some(watch_summary(state)),
        b"wchp" => Some(grouped(&watches_by_path(state))),
        b"wchc" => Some(grouped(&watches_by_session(state))),
        b"dump" => Some(dump(state)),
        _ => None,
    })
}

fn release(state: &State) -> &'static str {
    match state.config.version {
        Version::V3_8 => "3.8.0-zookeeper-test-server, built on 2022-02-25 08:49 UTC",
        Version::V3_9 => "3.9.0-zookeeper-test-server, built on 2023-07-31 08:49 UTC",
        _ => "v26.9.0.0-zookeeper-test-server, built on 2026-09-01 00:00:00 UTC",
    }
}

fn version(state: &State) -> String {
    let name = if state.config.version.is_keeper() { "ClickHouse Keeper" } else { "Zookeeper" };
    format!("{name} version: {}\n", release(state))
}

/// Returns the number of nodes. ZooKeeper counts the root twice.
fn nodes(state: &State) -> usize {
    state.tree.len() + 1
}

/// Returns the abbreviation of an operation that `cons` uses.
fn short_name(op: i32) -> &'static str {
    match op {
        0 => "SESS",
        opcode::CREATE | opcode::CREATE2 | opcode::CREATE_CONTAINER | opcode::CREATE_TTL => "CREA",
        opcode::DELETE => "DELE",
        opcode::EXISTS => "EXIS",
        opcode::GET_DATA => "GETD",
        opcode::SET_DATA => "SETD",
        opcode::GET_ACL => "GETA",
        opcode::SET_ACL => "SETA",
        opcode::GET_CHILDREN | opcode::GET_CHILDREN2 => "GETC",
        opcode::SYNC => "SYNC",
        opcode::PING => "PING",
        opcode::CHECK => "CHEC",
        opcode::MULTI => "MULT",
        opcode::MULTI_READ => "MLTR",
        opcode::SET_WATCHES | opcode::SET_WATCHES2 => "SETW",
        opcode::ADD_WATCH => "ADDW",
        opcode::REMOVE_WATCHES => "REMW",
        opcode::CLOSE_SESSION => "CLOS",
        _ => "NA",
    }
}

fn totals(state: &State) -> (u64, u64, usize) {
    state
        .connections
        .values()
        .map(|conn| conn.traffic())
        .fold((0, 0, 0), |sum, (received, sent, queued, ..)| (sum.0 + received, sum.1 + sent, sum.2 + queued))
}

fn summary(state: &State) -> String {
    let (received, sent, queued) = totals(state);
    format!(
        "Latency min/avg/max: 0/0.0/0\nReceived: {received}\nSent: {sent}\nConnections: {}\nOutstanding: {queued}\n\
         Zxid: {:#x}\nMode: standalone\nNode count: {}\n",
        state.connections.len(),
        state.zxid,
        nodes(state),
    )
}

fn clients(state: &State, detailed: bool) -> String {
    let mut text = String::new();
    for conn in state.connections.values() {
        let (received, sent, queued, last, xid) = conn.traffic();
        let _ = write!(text, " /{}[1](queued={queued},recved={received},sent={sent}", conn.peer);
        if let (true, Some(session)) = (detailed, state.sessions.get(conn.session())) {
            let _ = write!(
                text,
                ",sid={:#x},lop={},est={},to={},lcxid={xid:#x},lzxid={:#x},lresp=0,llat=0,minlat=0,avglat=0,maxlat=0",
                conn.session(),
                short_name(last),
                conn.since_ms,
                session.timeout_ms,
                state.zxid,
            );
        }
        text.push_str(")\n");
    }
    text
}

fn monitor(state: &State) -> String {
    let (received, sent, queued) = totals(state);
    let ephemerals: usize = state.tree.owners().map(|owner| state.tree.ephemerals(owner).count()).sum();
    let lines: [(&str, String); 14] = [
        ("zk_version", release(state).to_owned()),
        ("zk_server_state", "standalone".to_owned()),
        ("zk_avg_latency", "0.0".to_owned()),
        ("zk_min_latency", "0".to_owned()),
        ("zk_max_latency", "0".to_owned()),
        ("zk_packets_received", received.to_string()),
        ("zk_packets_sent", sent.to_string()),
        ("zk_num_alive_connections", state.connections.len().to_string()),
        ("zk_outstanding_requests", queued.to_string()),
        ("zk_global_sessions", state.sessions.iter().count().to_string()),
        ("zk_znode_count", nodes(state).to_string()),
        ("zk_watch_count", state.watches.len().to_string()),
        ("zk_ephemerals_count", ephemerals.to_string()),
        ("zk_approximate_data_size", state.tree.size().to_string()),
    ];
    lines.into_iter().fold(String::new(), |mut text, (key, value)| {
        let _ = writeln!(text, "{key}\t{value}");
        text
    })
}

fn configuration(state: &State, port: u16) -> String {
    let config = &state.config;
    format!(
        "clientPort={port}\nsecureClientPort=-1\ndataDir=\ndataDirSize=0\ndataLogDir=\ndataLogSize=0\ntickTime={}\n\
         maxClientCnxns=0\nminSessionTimeout={}\nmaxSessionTimeout={}\nclientPortListenBacklog=-1\nserverId=0\n",
        config.tick.as_millis(),
        config.min_timeout.as_millis(),
        config.max_timeout.as_millis(),
    )
}

fn watches_by_path(state: &State) -> BTreeMap<String, Vec<String>> {
    let session = |id: &u64| Some(format!("{:#x}", state.connections.get(id)?.session()));
    let paths = state.watches.data_watches().into_iter();
    paths.map(|(path, ids)| (path.to_owned(), ids.iter().filter_map(session).collect())).collect()
}

fn watches_by_session(state: &State) -> BTreeMap<String, Vec<String>> {
    let mut by_session: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, sessions) in watches_by_path(state) {
        for session in sessions {
            by_session.entry(session).or_default().push(path.clone());
        }
    }
    by_session
}

fn watch_summary(state: &State) -> String {
    let (paths, sessions) = (watches_by_path(state), watches_by_session(state));
    let total: usize = paths.values().map(Vec::len).sum();
    format!("{} connections watching {} paths\nTotal watches:{total}\n", sessions.len(), paths.len())
}

fn grouped(groups: &BTreeMap<String, Vec<String>>) -> String {
    let mut text = String::new();
    for (head, lines) in groups {
        let _ = writeln!(text, "{head}");
        for line in lines {
            let _ = writeln!(text, "\t{line}");
        }
    }
    text.push('\n');
    text
}

fn dump(state: &State) -> String {
    let mut expiring: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
    for (id, session) in state.sessions.iter() {
        expiring.entry(session.expires_at).or_default().push(id);
    }
    let mut text = format!(
        "SessionTracker dump:\nSession Sets ({})/({}):\n",
        expiring.len(),
        state.sessions.iter().count()
    );
    for (at, sessions) in expiring {
        let left = at.saturating_sub(state.now());
        let _ = writeln!(text, "{} expire in {left} ms:", sessions.len());
        for id in sessions {
            let _ = writeln!(text, "\t{id:#x}");
        }
    }
    let _ =
        writeln!(text, "ephemeral nodes dump:\nSessions with Ephemerals ({}):", state.tree.owners().count());
    for owner in state.tree.owners() {
        let _ = writeln!(text, "{owner:#x}:");
        for path in state.tree.ephemerals(owner) {
            let _ = writeln!(text, "\t{path}");
        }
    }
    text
}

//! The four-letter words, in ZooKeeper's formats.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::address;
use crate::connection::Conn;
use crate::members::Role;
use crate::server::Shared;
use crate::sessions::Session;
use crate::state::{State, Version, wall_ms};
use crate::wire::opcode;

/// Returns whether a number of eight bytes follows a word.
pub(crate) fn takes_a_number(head: [u8; 4]) -> bool {
    head == *b"stmk"
}

/// Returns the reply to a word; `None` if the first four bytes are not one.
pub(crate) fn answer(shared: &Shared, member: usize, bytes: &[u8]) -> Option<String> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    let port = shared.port.load(Ordering::Relaxed);
    shared.with(|state| {
        // A member that lags replies with its own state.
        state.swap_past(member);
        let text = reply(state, member, port, *head, rest);
        state.swap_past(member);
        text
    })
}

fn reply(
    state: &mut State,
    member: usize,
    port: u16,
    head: [u8; 4],
    rest: &[u8],
) -> Option<String> {
    let role = state.role(member);
    // A server that does not serve answers these words, too.
    let text = match &head {
        b"ruok" => "imok".to_owned(),
        b"isro" => match role {
            Role::Looking => "null",
            Role::ReadOnly => "ro",
            Role::Standalone | Role::Leader | Role::Follower => "rw",
        }
        .to_owned(),
        b"envi" => environment(state),
        b"gtmk" => state.trace_mask.to_string(),
        b"stmk" => {
            state.trace_mask = i64::from_be_bytes(*rest.first_chunk()?);
            state.trace_mask.to_string()
        }
        _ => {
            let text = of_server(state, member, port, head)?;
            if role == Role::Looking {
                NOT_SERVING.to_owned()
            } else {
                text
            }
        }
    };
    Some(text)
}

/// The answer of a member that has found no majority.
const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

fn of_server(state: &mut State, member: usize, port: u16, head: [u8; 4]) -> Option<String> {
    Some(match &head {
        b"srvr" => format!("{}{}", version(state, member), summary(state, member)),
        b"stat" => format!(
            "{}Clients:\n{}\n{}",
            version(state, member),
            clients(state, member, false),
            summary(state, member)
        ),
        b"cons" => format!("{}\n", clients(state, member, true)),
        b"mntr" => monitor(state, member),
        b"conf" => configuration(state, member, port),
        b"dirs" => "datadir_size: 0\nlogdir_size: 0\n".to_owned(),
        // The digests of a server whose digests are off, or that has had few transactions.
        b"hash" => String::new(),
        b"crst" => {
            reset_connections(state, member);
            "Connection stats reset.\n".to_owned()
        }
        b"srst" => {
            let (received, sent, _) = live(state, member);
            if let Some(traffic) = state.traffic.get_mut(member) {
                *traffic = (received.wrapping_neg(), sent.wrapping_neg());
            }
            "Server stats reset.\n".to_owned()
        }
        b"wchs" => watch_summary(state, member),
        b"wchp" => grouped(&watches_by_path(state, member)),
        b"wchc" => grouped(&watches_by_session(state, member)),
        b"dump" => dump(state, member),
        _ => return None,
    })
}

fn reset_connections(state: &mut State, member: usize) {
    for conn in connections(state, member).cloned().collect::<Vec<_>>() {
        state.take_traffic(&conn);
    }
}

fn release(state: &State) -> &'static str {
    match state.config.version {
        Version::V3_8 => "3.8.0-zookeeper-test-server, built on 2022-02-25 08:49 UTC",
        Version::V3_9 => "3.9.6-zookeeper-test-server, built on 2026-10-16 16:58 UTC",
        _ => "v26.9.0.0-zookeeper-test-server, built on 2026-09-01 00:00:00 UTC",
    }
}

fn version(state: &State, member: usize) -> String {
    let name = if state.config.version.is_keeper() {
        "ClickHouse Keeper"
    } else {
        "Zookeeper"
    };
    let mode = if state.role(member) == Role::ReadOnly {
        "READ-ONLY mode; serving only read-only clients\n"
    } else {
        ""
    };
    format!("{name} version: {}\n{mode}", release(state))
}

/// Returns the name of a member's role, as the replies have it.
fn mode(state: &State, member: usize) -> &'static str {
    match state.role(member) {
        Role::Standalone => "standalone",
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::ReadOnly => "read-only",
        Role::Looking => "looking",
    }
}

/// Returns the connections to a member.
fn connections(state: &State, member: usize) -> impl Iterator<Item = &Arc<Conn>> {
    let connections = state.connections.values();
    connections.filter(move |conn| conn.member == member)
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

/// Returns the number of frames received, sent and queued on the connections to a member that are
/// open.
fn live(state: &State, member: usize) -> (u64, u64, usize) {
    let traffic = connections(state, member).map(|conn| conn.traffic());
    traffic.fold((0, 0, 0), |sum, (received, sent, queued)| {
        (sum.0 + received, sum.1 + sent, sum.2 + queued)
    })
}

/// Returns the numbers of frames since the start or the last `srst`.
fn totals(state: &State, member: usize) -> (u64, u64, usize) {
    let (received, sent, queued) = live(state, member);
    let before = state.traffic.get(member).copied().unwrap_or_default();
    (
        before.0.wrapping_add(received),
        before.1.wrapping_add(sent),
        queued,
    )
}

fn summary(state: &State, member: usize) -> String {
    let (received, sent, queued) = totals(state, member);
    // The sizes are those of proposals, which this server does not measure.
    let proposals = if state.role(member) == Role::Leader && !state.config.version.is_keeper() {
        "Proposal sizes last/min/max: -1/-1/-1\n"
    } else {
        ""
    };
    format!(
        "Latency min/avg/max: 0/0.0/0\nReceived: {received}\nSent: {sent}\nConnections: {}\nOutstanding: {queued}\n\
         Zxid: {:#x}\nMode: {}\nNode count: {}\n{proposals}",
        connections(state, member).count(),
        state.zxid,
        mode(state, member),
        nodes(state),
    )
}

fn clients(state: &State, member: usize, detailed: bool) -> String {
    let mut text = String::new();
    for conn in connections(state, member) {
        let (received, sent, queued) = conn.traffic();
        let session = state
            .sessions
            .get(conn.session())
            .filter(|_| conn.is_greeted());
        // The operations of the socket for which the server waits.
        let waits_for = i32::from(session.is_some());
        let peer = address::with_port(conn.peer);
        let _ = write!(
            text,
            " /{peer}[{waits_for}](queued={queued},recved={received},sent={sent}"
        );
        if let (true, Some(session)) = (detailed, session) {
            let (name, xid, zxid) = conn.last().map_or(("NA", -1, -1), |(opcode, xid, zxid)| {
                (short_name(opcode), xid, zxid)
            });
            let (id, since) = (conn.session(), conn.since_ms);
            let _ = write!(
                text,
                ",sid={id:#x},lop={name},est={since},to={}",
                session.timeout_ms
            );
            if xid >= 0 {
                let _ = write!(text, ",lcxid={xid:#x}");
            }
            let _ = write!(
                text,
                ",lzxid={zxid:#x},lresp=0,llat=0,minlat=0,avglat=0,maxlat=0"
            );
        }
        text.push_str(")\n");
    }
    text
}

/// The counts of `mntr` that this server does not measure, always 0 here.
const ZERO: &str = "\
    non_mtls_remote_conn_count connection_drop_probability auth_failed_count local_sessions \
    outstanding_tls_handshake non_mtls_local_conn_count proposal_count watch_bytes \
    outstanding_changes_removed throttled_ops stale_requests_dropped large_requests_rejected \
    insecure_admin_count connection_rejected cnxn_closed_without_zk_server_running \
    sessionless_connections_expired looking_count dead_watchers_queued stale_requests \
    connection_drop_count learner_proposal_received_count digest_mismatches_count dead_watchers_cleared \
    response_packet_cache_hits bytes_received_count add_dead_watcher_stall_time \
    request_throttle_wait_count requests_not_forwarded_to_commit_processor response_packet_cache_misses \
    ensemble_auth_success prep_processor_request_queued learner_commit_received_count stale_replies \
    connection_request_count response_bytes ensemble_auth_fail diff_count \
    response_packet_get_children_cache_misses connection_revalidate_count \
    quit_leading_due_to_disloyal_voter snap_count unrecoverable_error_count unsuccessful_handshake \
    commit_count stale_sessions_expired response_packet_get_children_cache_hits \
    sync_processor_request_queued outstanding_changes_queued request_commit_queued ensemble_auth_skip \
    skip_learner_request_to_next_processor_count tls_handshake_exceeded revalidate_count";
/// The metrics with an average, a minimum, a maximum, a count and a sum.
const SUMMARIES: &str = "\
    socket_closing_time proposal_process_time leader_unavailable_time node_created_watch_count \
    session_queues_drained write_commit_proc_req_queued connection_token_deficit \
    read_commit_proc_req_queued node_deleted_watch_count startup_txns_load_time sync_processor_queue_size \
    follower_sync_time prep_processor_queue_size fsynctime inflight_snap_count \
    reads_issued_from_session_queue learner_request_processor_queue_size snapshottime unavailable_time \
    startup_txns_loaded reads_after_write_in_session_queue requests_in_session_queue \
    write_commit_proc_issued prep_process_time pending_session_queue_size \
    time_waiting_empty_pool_in_commit_processor_read_ms commit_process_time dbinittime inflight_diff_count \
    netty_queued_buffer_capacity election_time commit_commit_proc_req_queued sync_processor_batch_size \
    node_children_watch_count write_batch_time_in_commit_processor read_commit_proc_issued \
    concurrent_request_processing_in_commit_processor observer_sync_time node_changed_watch_count \
    sync_process_time startup_snap_load_time";
/// The metrics that also have percentiles.
const PERCENTILES: &str = "\
    prep_processor_queue_time_ms jvm_pause_time_ms close_session_prep_time read_commitproc_time_ms \
    updatelatency local_write_committed_time_ms request_throttle_queue_time_ms readlatency \
    quorum_ack_latency om_commit_process_time_ms read_final_proc_time_ms commit_propagation_latency \
    dead_watchers_cleaner_latency write_final_proc_time_ms proposal_ack_creation_latency proposal_latency \
    om_proposal_process_time_ms sync_processor_queue_and_flush_time_ms propagation_latency \
    server_write_committed_time_ms sync_processor_queue_time_ms sync_processor_queue_flush_time_ms \
    write_commitproc_time_ms";
/// The metrics that only 3.9 has.
const ZERO_3_9: &str = "\
    restore_error_count restore_rate_limited_count snapshot_error_count snapshot_rate_limited_count";
const SUMMARIES_3_9: &str = "restore_time";

/// Returns the further metrics of a member of an ensemble: lines with their values, metrics with an
/// average, and metrics with percentiles.
fn of_ensemble(state: &State, member: usize) -> (Vec<(&'static str, String)>, [Vec<String>; 2]) {
    let number = |number: usize| number.to_string();
    let learners = state.followers();
    let (mut lines, mut handlers) = (Vec::new(), [Vec::new(), Vec::new()]);
    match state.role(member) {
        Role::Leader => {
            lines.push(("peer_state", "leading - broadcast".to_owned()));
            for size in [
                "min_proposal_size",
                "max_proposal_size",
                "last_proposal_size",
            ] {
                lines.push((size, "-1".to_owned()));
            }
            lines.push(("synced_followers", number(learners.len())));
            for none in [
                "synced_non_voting_followers",
                "synced_observers",
                "pending_syncs",
            ] {
                lines.push((none, number(0)));
            }
            lines.push(("leader_uptime", state.uptime_ms().to_string()));
            lines.push(("learners", number(learners.len())));
            let of = |what: &str| {
                let name = |learner| format!("{learner}_learner_handler_qp_{what}");
                learners.iter().map(name).collect()
            };
            handlers = [of("size"), of("time_ms")];
        }
        Role::Follower => lines.push(("peer_state", "following - broadcast".to_owned())),
        Role::Standalone | Role::ReadOnly | Role::Looking => return (lines, handlers),
    }
    lines.push(("quorum_size", number(state.members.len())));
    (lines, handlers)
}

fn monitor(state: &State, member: usize) -> String {
    let (received, sent, queued) = totals(state, member);
    let mut text = String::new();
    let mut line = |key: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "zk_{key}\t{value}");
    };
    line("version", &release(state));
    line("server_state", &mode(state, member));
    let (lines, [sizes, times]) = if state.config.version.is_keeper() {
        Default::default()
    } else {
        of_ensemble(state, member)
    };
    for (key, value) in &lines {
        line(key, value);
    }
    line("ephemerals_count", &state.tree.ephemeral_count());
    let alive = connections(state, member).count();
    line("num_alive_connections", &alive);
    line("avg_latency", &"0.0");
    line("outstanding_requests", &queued);
    line("znode_count", &nodes(state));
    line("global_sessions", &state.sessions.iter().count());
    line("packets_sent", &sent);
    line("packets_received", &received);
    let here = |id| {
        let conn = state.connections.get(&id);
        conn.is_some_and(|conn| conn.member == member)
    };
    line("watch_count", &state.watches.count(here));
    line("min_latency", &0);
    line("max_latency", &0);
    line("approximate_data_size", &state.tree.size());
    line("uptime", &state.uptime_ms());
    // Sizes that this server does not measure are those of a server that has measured nothing yet.
    for size in [
        "last_client_response_size",
        "max_client_response_size",
        "min_client_response_size",
    ] {
        line(size, &-1);
    }
    line("max_file_descriptor_count", &1024);
    line("open_file_descriptor_count", &alive);
    let newer = if state.config.version == Version::V3_9 {
        (ZERO_3_9, SUMMARIES_3_9)
    } else {
        ("", "")
    };
    for key in ZERO.split_whitespace().chain(newer.0.split_whitespace()) {
        line(
            key,
            &if key == "connection_drop_probability" {
                "0.0"
            } else {
                "0"
            },
        );
    }
    let percentiles = PERCENTILES
        .split_whitespace()
        .chain(times.iter().map(String::as_str));
    for key in SUMMARIES
        .split_whitespace()
        .chain(newer.1.split_whitespace())
        .chain(sizes.iter().map(String::as_str))
        .chain(percentiles.clone())
    {
        line(&format!("avg_{key}"), &"0.0");
        for of in ["min", "max", "cnt", "sum"] {
            line(&format!("{of}_{key}"), &0);
        }
    }
    for key in percentiles {
        for of in ["p50", "p95", "p99", "p999"] {
            line(&format!("{of}_{key}"), &0);
        }
    }
    text
}

/// Returns the properties of Java's environment that this process knows.
fn environment(state: &State) -> String {
    let known = |variable: &str| std::env::var(variable).unwrap_or_else(|_| "?".to_owned());
    let directory = std::env::current_dir()
        .map(|path| path.display().to_string())
        .unwrap_or_default();
    format!(
        "Environment:\nzookeeper.version={}\nhost.name=localhost\njava.version=<NA>\njava.vendor=<NA>\n\
         java.home=<NA>\njava.class.path=\njava.library.path=\njava.io.tmpdir={}\njava.compiler=<NA>\n\
         os.name={}\nos.arch={}\nos.version=?\nuser.name={}\nuser.home={}\nuser.dir={directory}\n\
         os.memory.free=0MB\nos.memory.max=0MB\nos.memory.total=0MB\n",
        release(state),
        std::env::temp_dir().display(),
        std::env::consts::OS,
        std::env::consts::ARCH,
        known("USER"),
        known("HOME"),
    )
}

fn configuration(state: &State, member: usize, port: u16) -> String {
    let config = &state.config;
    format!(
        "clientPort={port}\nsecureClientPort=-1\ndataDir=\ndataDirSize=0\ndataLogDir=\ndataLogSize=0\ntickTime={}\n\
         maxClientCnxns=0\nminSessionTimeout={}\nmaxSessionTimeout={}\nclientPortListenBacklog=-1\nserverId={}\n",
        config.tick.as_millis(),
        config.min_timeout.as_millis(),
        config.max_timeout.as_millis(),
        if config.members > 1 { member + 1 } else { 0 },
    )
}

fn watches_by_path(state: &State, member: usize) -> BTreeMap<String, Vec<String>> {
    let session = |id: &u64| {
        let conn = state.connections.get(id);
        let here = conn.filter(|conn| conn.member == member)?;
        Some(format!("{:#x}", here.session()))
    };
    let paths = state.watches.data_watches().into_iter();
    paths
        .map(|(path, ids)| {
            let sessions: Vec<String> = ids.iter().filter_map(session).collect();
            (path.to_owned(), sessions)
        })
        .filter(|(_, sessions)| !sessions.is_empty())
        .collect()
}

fn watches_by_session(state: &State, member: usize) -> BTreeMap<String, Vec<String>> {
    let mut by_session: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, sessions) in watches_by_path(state, member) {
        for session in sessions {
            by_session.entry(session).or_default().push(path.clone());
        }
    }
    by_session
}

fn watch_summary(state: &State, member: usize) -> String {
    let paths = watches_by_path(state, member);
    let sessions = watches_by_session(state, member);
    let total: usize = paths.values().map(Vec::len).sum();
    format!(
        "{} connections watching {} paths\nTotal watches:{total}\n",
        sessions.len(),
        paths.len()
    )
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

/// Writes sets of what expires, by the time of the expiry.
fn expiring(text: &mut String, of: &str, sets: &BTreeMap<i64, Vec<String>>) {
    let total: usize = sets.values().map(Vec::len).sum();
    let _ = writeln!(text, "{of} Sets ({})/({total}):", sets.len());
    for (at, lines) in sets {
        let _ = writeln!(text, "{} expire at {}:", lines.len(), date(*at));
        for line in lines {
            let _ = writeln!(text, "\t{line}");
        }
    }
}

/// Writes the sessions that a member knows from the leader, which has them expire.
fn learned(text: &mut String, state: &State) {
    let known = state.sessions.iter();
    let global: Vec<_> = known
        .filter(|(_, session)| session.local.is_none())
        .collect();
    let _ = writeln!(text, "Global Sessions({}):", global.len());
    for (id, session) in global {
        let _ = writeln!(text, "{id:#x}\t{}ms", session.timeout_ms);
    }
}

fn dump(state: &State, member: usize) -> String {
    let wall = |at: u64| wall_ms() - millis(state.now()) + millis(at);
    let mut text = "SessionTracker dump:\n".to_owned();
    let mut sessions: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    let mut open: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    let role = state.role(member);
    let learns = matches!(role, Role::Follower | Role::ReadOnly);
    let tracked = |session: &Session| match session.local {
        Some(local) => local == member,
        None => !learns,
    };
    for (id, session) in state.sessions.iter().filter(|(_, it)| tracked(it)) {
        sessions
            .entry(wall(session.expires_at))
            .or_default()
            .push(format!("{id:#x}"));
    }
    for conn in connections(state, member) {
        let at = state
            .sessions
            .get(conn.session())
            .map_or_else(wall_ms, |session| wall(session.expires_at));
        let line = format!("ip: /{} sessionId: {:#x}", conn.peer, conn.session());
        open.entry(at).or_default().push(line);
    }
    if !sessions.is_empty() || !learns {
        let of = if learns { "Local Session" } else { "Session" };
        expiring(&mut text, of, &sessions);
    }
    if learns {
        learned(&mut text, state);
    }
    let _ = writeln!(
        text,
        "ephemeral nodes dump:\nSessions with Ephemerals ({}):",
        state.tree.owners().len()
    );
    for owner in state.tree.owners() {
        let _ = writeln!(text, "{owner:#x}:");
        for path in state.tree.ephemerals(owner) {
            let _ = writeln!(text, "\t{path}");
        }
    }
    text.push_str("Connections dump:\n");
    expiring(&mut text, "Connections", &open);
    text
}

fn millis(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX / 4)
}

/// Writes milliseconds since the Unix epoch as Java's `Date` does, in UTC.
fn date(ms: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (days, second) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000) / 1000);
    // Years that begin in March have their leap day at the end; an era is 400 of them.
    let (era, day) = (
        (days + 719_468).div_euclid(146_097),
        (days + 719_468).rem_euclid(146_097),
    );
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let year = year + era * 400 + i64::from(month >= 10);
    let name = |names: &[&'static str], index: i64| {
        usize::try_from(index)
            .ok()
            .and_then(|index| names.get(index).copied())
            .unwrap_or_default()
    };
    format!(
        "{} {} {day_of_month:02} {:02}:{:02}:{:02} UTC {year}",
        name(&DAYS, days.rem_euclid(7)),
        name(&MONTHS, (month + 2) % 12),
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn formats_dates_as_java_does() {
        for (ms, text) in [
            (0, "Thu Jan 01 00:00:00 UTC 1970"),
            (951_827_696_789, "Tue Feb 29 12:34:56 UTC 2000"),
            (1_795_614_185_000, "Wed Nov 25 13:43:05 UTC 2026"),
            (4_107_542_399_000, "Sun Feb 28 23:59:59 UTC 2100"),
            (4_107_542_400_000, "Mon Mar 01 00:00:00 UTC 2100"),
        ] {
            assert_eq!(super::date(ms), text);
        }
    }
}

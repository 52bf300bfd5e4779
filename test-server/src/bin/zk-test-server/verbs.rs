//! What the commands do: each is a method of [`Server`], with the same name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zookeeper_test_server::{
    CreateMode, Cut, Direction, Fault, Gate, Hit, Isolation, LogEntry, LogKind, Loss, Match, Member,
    NodeInfo, NodeKind, Op, Server, ServerError, SessionInfo,
};

use crate::json::Json;

type Fields = Vec<(String, Json)>;
type Outcome = Result<Fields, String>;

/// The operations that have names of their own.
const OPS: [(&str, Op); 19] = [
    ("create", Op::Create),
    ("delete", Op::Delete),
    ("exists", Op::Exists),
    ("get_data", Op::GetData),
    ("set_data", Op::SetData),
    ("get_children", Op::GetChildren),
    ("sync", Op::Sync),
    ("multi", Op::Multi),
    ("multi_read", Op::MultiRead),
    ("check", Op::Check),
    ("remove_watches", Op::RemoveWatches),
    ("set_watches", Op::SetWatches),
    ("add_watch", Op::AddWatch),
    ("auth", Op::Auth),
    ("ping", Op::Ping),
    ("close_session", Op::CloseSession),
    ("connect", Op::Connect),
    ("get_acl", Op::GetAcl),
    ("set_acl", Op::SetAcl),
];

const MEMBERS: [(&str, Member); 5] = [
    ("current", Member::Current),
    ("behind", Member::Behind),
    ("cut_follower", Member::Cut(Isolation::Follower)),
    ("cut_deposed_leader", Member::Cut(Isolation::DeposedLeader)),
    ("down", Member::Down),
];

const MODES: [(&str, CreateMode); 5] = [
    ("persistent", CreateMode::Persistent),
    ("persistent_sequential", CreateMode::PersistentSequential),
    ("ephemeral", CreateMode::Ephemeral),
    ("ephemeral_sequential", CreateMode::EphemeralSequential),
    ("container", CreateMode::Container),
];

/// The faults in force, by the numbers that clients know them by.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    held: Mutex<(u64, BTreeMap<u64, Held>)>,
}

#[derive(Clone, Debug)]
enum Held {
    Gate(Arc<Gate>),
    Fault(Fault),
}

impl Held {
    fn hits(&self) -> Vec<Hit> {
        match self {
            Self::Gate(gate) => gate.hits(),
            Self::Fault(fault) => fault.hits(),
        }
    }

    fn wait_hit(&self, timeout: Duration) -> bool {
        match self {
            Self::Gate(gate) => gate.wait_hit_blocking(timeout),
            Self::Fault(fault) => fault.wait_hit_blocking(timeout),
        }
    }

    fn end(&self) {
        match self {
            Self::Gate(gate) => gate.release(),
            Self::Fault(fault) => fault.remove(),
        }
    }
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Held>)> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, held: Held) -> Outcome {
        let mut known = self.lock();
        known.0 += 1;
        let number = known.0;
        known.1.insert(number, held);
        Ok(one("fault", Json::Number(i64::try_from(number).unwrap_or(i64::MAX))))
    }

    fn get(&self, command: &Json) -> Result<Held, String> {
        let number = integer(command, "fault")?;
        let known = self.lock();
        let held = u64::try_from(number).ok().and_then(|number| known.1.get(&number).cloned());
        held.ok_or_else(|| format!("there is no fault {number}"))
    }
}

/// Does what a command says, and returns the fields of the reply.
pub(crate) fn run(server: &Server, faults: &Faults, command: &Json) -> Outcome {
    match text(command, "do")? {
        "hold_request" => faults.add(Held::Gate(Arc::new(server.hold_request(matcher(command)?)))),
        "hold_reply" => faults.add(Held::Gate(Arc::new(server.hold_reply(matcher(command)?)))),
        "drop_request" => faults.add(Held::Fault(server.drop_request(matcher(command)?, loss(command)?))),
        "drop_reply" => faults.add(Held::Fault(server.drop_reply(matcher(command)?, loss(command)?))),
        "delay_reply" => {
            let delay = milliseconds(command, "delay_ms")?;
            faults.add(Held::Fault(server.delay_reply(matcher(command)?, delay)))
        }
        "fail" => {
            let code = small(command, "code")?;
            faults.add(Held::Fault(server.fail(matcher(command)?, code)))
        }
        "release" | "remove" => {
            faults.get(command)?.end();
            nothing()
        }
        "hits" => Ok(one("hits", Json::List(faults.get(command)?.hits().iter().map(hit).collect()))),
        "wait_hit" => {
            let timeout = milliseconds(command, "timeout_ms")?;
            Ok(one("hit", Json::Bool(faults.get(command)?.wait_hit(timeout))))
        }
        "clear_faults" => {
            server.clear_faults();
            faults.lock().1.clear();
            nothing()
        }
        other => of_server(server, command, other),
    }
}

fn of_server(server: &Server, command: &Json, verb: &str) -> Outcome {
    match verb {
        "expire_session" => known(server.expire_session(session(command)?)),
        "cut" => known(server.cut(session(command)?, cut(command)?)),
        "stall" => known(server.stall(session(command)?, direction(command)?)),
        "resume" => {
            server.resume(session(command)?);
            nothing()
        }
        "isolate" => known(server.isolate(session(command)?, isolation(command)?)),
        "heal" => {
            server.heal(session(command)?);
            nothing()
        }
        "set_member" => {
            let index = small(command, "index")?;
            let member = choice(command, "member", &MEMBERS)?;
            let known = usize::try_from(index).is_ok_and(|index| server.set_member(index, member));
            if known { nothing() } else { Err(format!("there is no member {index}")) }
        }
        "refuse_connections" => {
            server.refuse_connections(flag(command, "refuse")?);
            nothing()
        }
        "freeze_expiry" => {
            server.freeze_expiry(flag(command, "freeze")?);
            nothing()
        }
        "advance_epoch" => {
            server.advance_epoch();
            nothing()
        }
        "stop" => {
            server.stop();
            nothing()
        }
        "restart" => server.restart().map_err(|error| error.to_string()).and_then(|()| nothing()),
        "sweep_containers" => Ok(one("swept", count(server.sweep_containers()))),
        "reset_counters" => {
            server.reset_counters();
            nothing()
        }
        "counters" => Ok(counters(server)),
        "log" => log(server, command),
        "sessions" => Ok(one("sessions", Json::List(server.sessions().iter().map(described).collect()))),
        "watches_on" => {
            let sessions = server.watches_on(text(command, "path")?);
            Ok(one("sessions", Json::List(sessions.into_iter().map(id).collect())))
        }
        other => of_nodes(server, command, other),
    }
}

fn of_nodes(server: &Server, command: &Json, verb: &str) -> Outcome {
    let path = || text(command, "path");
    let data = || Ok::<_, String>(optional_text(command, "data")?.unwrap_or_default());
    match verb {
        "create" => done(server.create(path()?, data()?)),
        "create_as" => {
            let owner = command.get("owner").map_or(Ok(0), as_session)?;
            let created = server.create_as(path()?, data()?, choice(command, "mode", &MODES)?, owner);
            created.map(|path| one("path", Json::Text(path))).map_err(|error| error.to_string())
        }
        "set_data" => done(server.set_data(path()?, data()?)),
        "delete" => done(server.delete(path()?)),
        "set_next_sequence" => done(server.set_next_sequence(path()?, small(command, "next")?)),
        "exists" => Ok(one("exists", Json::Bool(server.exists(path()?)))),
        "children" => {
            let names = server.children(path()?).into_iter().map(Json::Text).collect();
            Ok(one("children", Json::List(names)))
        }
        "node" => Ok(one("node", server.node(path()?).map_or(Json::Null, |info| node(&info)))),
        _ => Err(format!("there is no command {verb}")),
    }
}

fn one(name: &str, value: Json) -> Fields {
    vec![(name.to_owned(), value)]
}

fn nothing() -> Outcome {
    Ok(Fields::new())
}

fn known(known: bool) -> Outcome {
    if known { nothing() } else { Err("there is no such session, or it has no connection".to_owned()) }
}

fn done(outcome: Result<(), ServerError>) -> Outcome {
    outcome.map_err(|error| error.to_string()).and_then(|()| nothing())
}

// ---- what commands say ---------------------------------------------------------------------------

fn field<'a>(command: &'a Json, name: &str) -> Result<&'a Json, String> {
    command.get(name).ok_or_else(|| format!("{name} is missing"))
}

fn optional_text<'a>(command: &'a Json, name: &str) -> Result<Option<&'a str>, String> {
    match command.get(name) {
        None => Ok(None),
        Some(Json::Text(text)) => Ok(Some(text)),
        Some(other) => Err(format!("{name} is no text: {other}")),
    }
}

fn text<'a>(command: &'a Json, name: &str) -> Result<&'a str, String> {
    optional_text(command, name)?.ok_or_else(|| format!("{name} is missing"))
}

fn as_integer(name: &str, value: &Json) -> Result<i64, String> {
    match value {
        Json::Number(number) => Ok(*number),
        other => Err(format!("{name} is no number: {other}")),
    }
}

fn integer(command: &Json, name: &str) -> Result<i64, String> {
    as_integer(name, field(command, name)?)
}

fn small(command: &Json, name: &str) -> Result<i32, String> {
    i32::try_from(integer(command, name)?).map_err(|_| format!("{name} is too large"))
}

fn milliseconds(command: &Json, name: &str) -> Result<Duration, String> {
    u64::try_from(integer(command, name)?)
        .map(Duration::from_millis)
        .map_err(|_| format!("{name} is negative"))
}

fn flag(command: &Json, name: &str) -> Result<bool, String> {
    match field(command, name)? {
        Json::Bool(value) => Ok(*value),
        other => Err(format!("{name} is neither true nor false: {other}")),
    }
}

/// Reads a session: a number, or a text such as `0x1000`, for languages whose numbers are too small.
fn as_session(value: &Json) -> Result<i64, String> {
    let wrong = || format!("session is no session id: {value}");
    match value {
        Json::Number(id) => Ok(*id),
        Json::Text(text) => match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16)
                .map(|id| i64::from_ne_bytes(id.to_ne_bytes()))
                .map_err(|_| wrong()),
            None => text.parse().map_err(|_| wrong()),
        },
        _ => Err(wrong()),
    }
}

fn session(command: &Json) -> Result<i64, String> {
    as_session(field(command, "session")?)
}

fn choice<T: Copy>(command: &Json, name: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let chosen = text(command, name)?;
    let found = choices.iter().find(|(choice, _)| *choice == chosen).map(|(_, value)| *value);
    let all = || choices.iter().map(|(choice, _)| *choice).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("{name} is {chosen}, and none of {}", all()))
}

fn loss(command: &Json) -> Result<Loss, String> {
    choice(command, "loss", &[("close", Loss::Close), ("reset", Loss::Reset), ("stall", Loss::Stall)])
}

fn cut(command: &Json) -> Result<Cut, String> {
    choice(command, "how", &[("fin", Cut::Fin), ("reset", Cut::Reset)])
}

fn direction(command: &Json) -> Result<Direction, String> {
    let (to_server, to_client) = (Direction::ToServer, Direction::ToClient);
    choice(
        command,
        "direction",
        &[("to_server", to_server), ("to_client", to_client), ("both", Direction::Both)],
    )
}

fn isolation(command: &Json) -> Result<Isolation, String> {
    let choices = [("follower", Isolation::Follower), ("deposed_leader", Isolation::DeposedLeader)];
    choice(command, "isolation", &choices)
}

fn matcher(command: &Json) -> Result<Match, String> {
    let mut matcher = match command.get("op") {
        Some(_) => Match::op(choice(command, "op", &OPS)?),
        None => Match::any(),
    };
    if command.get("opcode").is_some() {
        matcher = matcher.opcode(small(command, "opcode")?);
    }
    if let Some(path) = optional_text(command, "path")? {
        matcher = matcher.path(path);
    }
    if let Some(prefix) = optional_text(command, "path_prefix")? {
        matcher = matcher.path_prefix(prefix);
    }
    if let Some(part) = optional_text(command, "path_contains")? {
        matcher = matcher.path_contains(part);
    }
    if let Some(session) = command.get("session") {
        matcher = matcher.session(as_session(session)?);
    }
    let many =
        |name, value| usize::try_from(as_integer(name, value)?).map_err(|_| format!("{name} is negative"));
    if let Some(nth) = command.get("nth") {
        matcher = matcher.nth(many("nth", nth)?);
    }
    match command.get("times") {
        None => Ok(matcher),
        Some(Json::Text(text)) if text == "always" => Ok(matcher.always()),
        Some(times) => Ok(matcher.times(many("times", times)?)),
    }
}

// ---- what replies say ----------------------------------------------------------------------------

fn id(session: i64) -> Json {
    Json::Text(format!("{session:#x}"))
}

fn count(number: usize) -> Json {
    Json::Number(i64::try_from(number).unwrap_or(i64::MAX))
}

fn large(number: u64) -> Json {
    Json::Number(i64::try_from(number).unwrap_or(i64::MAX))
}

fn op_name(op: Op) -> Json {
    let name = OPS.iter().find(|(_, known)| *known == op).map(|(name, _)| (*name).to_owned());
    Json::Text(name.unwrap_or_else(|| match op {
        Op::Other(code) => format!("other {code}"),
        other => format!("{other:?}"),
    }))
}

fn hit(hit: &Hit) -> Json {
    Json::object([("session", id(hit.session)), ("op", op_name(hit.op)), ("path", Json::text(&*hit.path))])
}

fn duration(duration: Duration) -> Json {
    large(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn described(session: &SessionInfo) -> Json {
    let ephemerals = session.ephemerals.iter().map(Json::text).collect();
    Json::object([
        ("session", id(session.id)),
        ("timeout_ms", duration(session.timeout)),
        ("connected", Json::Bool(session.connected)),
        ("ephemerals", Json::List(ephemerals)),
        ("age_ms", duration(session.age)),
    ])
}

fn node(node: &NodeInfo) -> Json {
    let kind = match node.kind {
        NodeKind::Persistent => "persistent",
        NodeKind::Ephemeral { .. } => "ephemeral",
        NodeKind::Container => "container",
        NodeKind::Ttl { .. } => "ttl",
        _ => "other",
    };
    Json::object([
        ("data", Json::Text(String::from_utf8_lossy(&node.data).into_owned())),
        ("kind", Json::text(kind)),
        ("czxid", id(node.czxid)),
        ("mzxid", id(node.mzxid)),
        ("pzxid", id(node.pzxid)),
        ("version", Json::Number(node.version.into())),
        ("cversion", Json::Number(node.cversion.into())),
        ("aversion", Json::Number(node.aversion.into())),
        ("ephemeral_owner", id(node.ephemeral_owner)),
        ("num_children", count(node.num_children)),
        ("next_sequence", Json::Number(node.next_sequence.into())),
    ])
}

fn counters(server: &Server) -> Fields {
    let counters = server.counters();
    let requests = OPS.iter().map(|(name, op)| ((*name).to_owned(), large(counters.requests(*op)))).collect();
    vec![
        ("requests".to_owned(), Json::Object(requests)),
        ("total_requests".to_owned(), large(counters.total_requests())),
        ("notifications".to_owned(), large(counters.notifications())),
        ("watches".to_owned(), count(counters.watches())),
    ]
}

fn log(server: &Server, command: &Json) -> Outcome {
    let since = command.get("since").map_or(Ok(0), |value| as_integer("since", value))?;
    let entries = server.log();
    let new = entries.iter().filter(|entry| i64::try_from(entry.n).is_ok_and(|n| n >= since));
    Ok(one("log", Json::List(new.map(entry).collect())))
}

fn entry(entry: &LogEntry) -> Json {
    let kind = match entry.kind {
        LogKind::Closed(reason) => format!("closed {reason:?}").to_lowercase(),
        kind => format!("{kind:?}").to_lowercase(),
    };
    Json::object([
        ("n", large(entry.n)),
        ("request", large(entry.request)),
        ("session", id(entry.session)),
        ("op", op_name(entry.op)),
        ("opcode", Json::Number(entry.opcode.into())),
        ("path", Json::text(&*entry.path)),
        ("zxid", id(entry.zxid)),
        ("error", Json::Number(entry.error.into())),
        ("kind", Json::Text(kind)),
    ])
}

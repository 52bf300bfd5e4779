//! The commands: each is a method of [`Server`] with the same name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use zookeeper_test_server::{
    Fault, Gate, HistoryEntry, HistoryEvent, Hit, LogEntry, LogKind, NodeInfo, NodeKind, Op,
    Server, ServerError, SessionInfo, View,
};

use crate::fields::{Command, MATCH, OPS};

/// The fields of a reply, or why there is none.
type Outcome = Result<Value, String>;

/// The commands that make a fault, with their fields beside those of a match.
const FAULTS: [(&str, &[&str]); 6] = [
    ("hold_request", &[]),
    ("hold_reply", &[]),
    ("drop_request", &["loss"]),
    ("drop_reply", &["loss"]),
    ("delay_reply", &["delay_ms"]),
    ("fail", &["code"]),
];

/// The other commands, with their fields.
const COMMANDS: [(&str, &[&str]); 34] = [
    ("release", &["fault"]),
    ("remove", &["fault"]),
    ("hits", &["fault"]),
    ("wait_hit", &["fault", "timeout_ms"]),
    ("clear_faults", &[]),
    ("stop", &[]),
    ("restart", &[]),
    ("advance_epoch", &[]),
    ("advance_clock", &["by_ms"]),
    ("refuse_connections", &["refuse"]),
    ("freeze_expiry", &["freeze"]),
    ("reset_counters", &[]),
    ("set_member", &["index", "member"]),
    ("sweep_containers", &[]),
    ("counters", &[]),
    ("log", &["since"]),
    ("history", &["since"]),
    (
        "wait_until",
        &[
            "timeout_ms",
            "exists",
            "missing",
            "watched",
            "ended",
            "sessions",
        ],
    ),
    ("sessions", &[]),
    ("expire_session", &["session"]),
    ("cut", &["session", "how"]),
    ("stall", &["session", "direction"]),
    ("isolate", &["session", "isolation"]),
    ("resume", &["session"]),
    ("heal", &["session"]),
    ("create", &["path", "data"]),
    ("create_as", &["path", "data", "mode", "owner"]),
    ("set_data", &["path", "data"]),
    ("delete", &["path"]),
    ("set_next_sequence", &["path", "next"]),
    ("exists", &["path"]),
    ("children", &["path"]),
    ("node", &["path"]),
    ("watches_on", &["path"]),
];

/// Returns the fields of a command; `None` if there is no such command.
fn fields(verb: &str) -> Option<Vec<&'static str>> {
    let of = |commands: &[(&str, &'static [&'static str])]| {
        let known = commands.iter().find(|(name, _)| *name == verb);
        known.map(|(_, fields)| *fields)
    };
    let fault = of(&FAULTS).map(|others| [&MATCH[..], others].concat());
    fault.or_else(|| of(&COMMANDS).map(<[_]>::to_vec))
}

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

    fn gate(&self, gate: Gate) -> Outcome {
        self.add(Held::Gate(Arc::new(gate)))
    }

    fn fault(&self, fault: Fault) -> Outcome {
        self.add(Held::Fault(fault))
    }

    fn add(&self, held: Held) -> Outcome {
        let mut known = self.lock();
        known.0 += 1;
        let number = known.0;
        known.1.insert(number, held);
        Ok(json!({ "fault": number }))
    }

    fn get(&self, command: &Command<'_>) -> Result<Held, String> {
        let number: u64 = command.number("fault")?;
        let held = self.lock().1.get(&number).cloned();
        held.ok_or_else(|| format!("there is no fault {number}"))
    }
}

/// Does what a command says, and returns the fields of the reply. A field that is unknown is
/// refused: the command would do something else than its author wants.
pub(crate) fn run(server: &Server, faults: &Faults, command: &Command<'_>) -> Outcome {
    let verb = command.text("do")?;
    command.has_only(&fields(verb).ok_or_else(|| no_command(verb))?)?;
    match verb {
        "hold_request" => faults.gate(server.hold_request(command.matcher()?)),
        "hold_reply" => faults.gate(server.hold_reply(command.matcher()?)),
        "drop_request" => {
            let matcher = command.matcher()?;
            faults.fault(server.drop_request(matcher, command.loss()?))
        }
        "drop_reply" => {
            let matcher = command.matcher()?;
            faults.fault(server.drop_reply(matcher, command.loss()?))
        }
        "delay_reply" => {
            let matcher = command.matcher()?;
            faults.fault(server.delay_reply(matcher, command.milliseconds("delay_ms")?))
        }
        "fail" => {
            let matcher = command.matcher()?;
            faults.fault(server.fail(matcher, command.number("code")?))
        }
        "release" | "remove" => {
            faults.get(command)?.end();
            nothing()
        }
        "hits" => {
            let hits: Vec<Value> = faults.get(command)?.hits().iter().map(hit).collect();
            Ok(json!({ "hits": hits }))
        }
        "wait_hit" => {
            let timeout = command.milliseconds("timeout_ms")?;
            Ok(json!({ "hit": faults.get(command)?.wait_hit(timeout) }))
        }
        "clear_faults" => {
            server.clear_faults();
            faults.lock().1.clear();
            nothing()
        }
        verb => of_server(server, command, verb),
    }
}

fn of_server(server: &Server, command: &Command<'_>, verb: &str) -> Outcome {
    match verb {
        "stop" => server.stop(),
        "restart" => server.restart().map_err(|error| error.to_string())?,
        "advance_epoch" => server.advance_epoch(),
        "advance_clock" => server.advance_clock(command.milliseconds("by_ms")?),
        "refuse_connections" => server.refuse_connections(command.flag("refuse")?),
        "freeze_expiry" => server.freeze_expiry(command.flag("freeze")?),
        "reset_counters" => server.reset_counters(),
        "set_member" => {
            let index = command.number("index")?;
            if !server.set_member(index, command.member()?) {
                return Err(format!("there is no member {index}"));
            }
        }
        "sweep_containers" => return Ok(json!({ "swept": server.sweep_containers() })),
        "counters" => return Ok(counters(server)),
        "log" => return log(server, command),
        "history" => return history(server, command),
        "wait_until" => {
            let condition = Condition::of(command)?;
            let timeout = command.milliseconds("timeout_ms")?;
            let holds = server.wait_until_blocking(|view| condition.holds(view), timeout);
            return Ok(json!({ "holds": holds }));
        }
        "sessions" => {
            let sessions: Vec<Value> = server.sessions().iter().map(described).collect();
            return Ok(json!({ "sessions": sessions }));
        }
        verb => return of_session(server, command, verb),
    }
    nothing()
}

fn of_session(server: &Server, command: &Command<'_>, verb: &str) -> Outcome {
    let session = || command.session("session");
    let known = match verb {
        "expire_session" => server.expire_session(session()?),
        "cut" => server.cut(session()?, command.cut()?),
        "stall" => server.stall(session()?, command.direction()?),
        "isolate" => server.isolate(session()?, command.isolation()?),
        "resume" => {
            server.resume(session()?);
            true
        }
        "heal" => {
            server.heal(session()?);
            true
        }
        verb => return of_nodes(server, command, verb),
    };
    if known {
        nothing()
    } else {
        Err("there is no such session, or it has no connection".to_owned())
    }
}

fn of_nodes(server: &Server, command: &Command<'_>, verb: &str) -> Outcome {
    let path = || command.text("path");
    let data = || Ok::<_, String>(command.optional_text("data")?.unwrap_or_default());
    match verb {
        "create" => done(server.create(path()?, data()?)),
        "create_as" => {
            let owner = if command.get("owner").is_some() {
                command.session("owner")?
            } else {
                0
            };
            let created = server.create_as(path()?, data()?, command.mode()?, owner);
            created
                .map(|path| json!({ "path": path }))
                .map_err(|error| error.to_string())
        }
        "set_data" => done(server.set_data(path()?, data()?)),
        "delete" => done(server.delete(path()?)),
        "set_next_sequence" => done(server.set_next_sequence(path()?, command.number("next")?)),
        "exists" => Ok(json!({ "exists": server.exists(path()?) })),
        "children" => Ok(json!({ "children": server.children(path()?) })),
        "node" => Ok(json!({ "node": server.node(path()?).as_ref().map(node) })),
        "watches_on" => {
            let sessions: Vec<String> = server.watches_on(path()?).into_iter().map(id).collect();
            Ok(json!({ "sessions": sessions }))
        }
        verb => Err(no_command(verb)),
    }
}

fn no_command(verb: &str) -> String {
    format!("there is no command {verb}")
}

fn nothing() -> Outcome {
    Ok(json!({}))
}

fn done(outcome: Result<(), ServerError>) -> Outcome {
    outcome
        .map_err(|error| error.to_string())
        .and_then(|()| nothing())
}

/// Returns a session or a transaction id as text: not every language has numbers that are large
/// enough.
fn id(number: i64) -> String {
    format!("{number:#x}")
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn op_name(op: Op) -> String {
    let name = OPS
        .iter()
        .find(|(_, known)| *known == op)
        .map(|(name, _)| (*name).to_owned());
    name.unwrap_or_else(|| match op {
        Op::Other(code) => format!("other {code}"),
        other => format!("{other:?}"),
    })
}

fn hit(hit: &Hit) -> Value {
    json!({ "session": id(hit.session), "op": op_name(hit.op), "path": hit.path })
}

fn described(session: &SessionInfo) -> Value {
    json!({
        "session": id(session.id),
        "timeout_ms": ms(session.timeout),
        "connected": session.connected,
        "ephemerals": session.ephemerals,
        "age_ms": ms(session.age),
    })
}

fn node(node: &NodeInfo) -> Value {
    let kind = match node.kind {
        NodeKind::Persistent => "persistent",
        NodeKind::Ephemeral { .. } => "ephemeral",
        NodeKind::Container => "container",
        NodeKind::Ttl { .. } => "ttl",
        _ => "other",
    };
    json!({
        "data": String::from_utf8_lossy(&node.data),
        "kind": kind,
        "czxid": id(node.czxid),
        "mzxid": id(node.mzxid),
        "pzxid": id(node.pzxid),
        "version": node.version,
        "cversion": node.cversion,
        "aversion": node.aversion,
        "ephemeral_owner": id(node.ephemeral_owner),
        "num_children": node.num_children,
        "next_sequence": node.next_sequence,
    })
}

fn counters(server: &Server) -> Value {
    let counters = server.counters();
    let requests: Map<String, Value> = OPS
        .iter()
        .map(|(name, op)| ((*name).to_owned(), counters.requests(*op).into()))
        .collect();
    json!({
        "requests": requests,
        "total_requests": counters.total_requests(),
        "notifications": counters.notifications(),
        "watches": counters.watches(),
    })
}

/// The condition of `wait_until`: everything that the command names.
struct Condition<'a> {
    exists: Option<&'a str>,
    missing: Option<&'a str>,
    watched: Option<&'a str>,
    ended: Option<i64>,
    sessions: Option<usize>,
}

impl<'a> Condition<'a> {
    fn of(command: &'a Command<'_>) -> Result<Self, String> {
        Ok(Self {
            exists: command.optional_text("exists")?,
            missing: command.optional_text("missing")?,
            watched: command.optional_text("watched")?,
            ended: command
                .get("ended")
                .map(|_| command.session("ended"))
                .transpose()?,
            sessions: command
                .get("sessions")
                .map(|_| command.number("sessions"))
                .transpose()?,
        })
    }

    fn holds(&self, view: View<'_>) -> bool {
        self.exists.is_none_or(|path| view.exists(path))
            && self.missing.is_none_or(|path| !view.exists(path))
            && self
                .watched
                .is_none_or(|path| !view.watches_on(path).is_empty())
            && self
                .ended
                .is_none_or(|id| view.sessions().iter().all(|session| session.id != id))
            && self
                .sessions
                .is_none_or(|number| view.sessions().len() == number)
    }
}

/// Returns the number of the entry from which on a list is wanted, 0 by default.
fn since(command: &Command<'_>) -> Result<u64, String> {
    command
        .get("since")
        .map_or(Ok(0), |_| command.number("since"))
}

fn history(server: &Server, command: &Command<'_>) -> Outcome {
    let entries: Vec<Value> = server
        .history(since(command)?)
        .iter()
        .map(happened)
        .collect();
    Ok(json!({ "history": entries }))
}

fn happened(entry: &HistoryEntry) -> Value {
    let (event, mut fields) = match &entry.event {
        HistoryEvent::SessionOpened => ("session_opened", json!({})),
        HistoryEvent::SessionResumed => ("session_resumed", json!({})),
        HistoryEvent::SessionDisconnected => ("session_disconnected", json!({})),
        HistoryEvent::SessionClosed => ("session_closed", json!({})),
        HistoryEvent::SessionExpired => ("session_expired", json!({})),
        HistoryEvent::Created { path, data } => {
            ("created", json!({ "path": path, "data": text(data) }))
        }
        HistoryEvent::Deleted { path } => ("deleted", json!({ "path": path })),
        HistoryEvent::DataSet { path, data } => {
            ("data_set", json!({ "path": path, "data": text(data) }))
        }
        HistoryEvent::AclSet { path } => ("acl_set", json!({ "path": path })),
        HistoryEvent::WatchSet { path, watch } => (
            "watch_set",
            json!({ "path": path, "watch": format!("{watch:?}").to_lowercase() }),
        ),
        HistoryEvent::WatchRemoved { path } => ("watch_removed", json!({ "path": path })),
        HistoryEvent::WatchFired { path, event } => {
            ("watch_fired", json!({ "path": path, "type": event }))
        }
        other => ("other", json!({ "debug": format!("{other:?}") })),
    };
    fields["event"] = event.into();
    fields["n"] = entry.n.into();
    fields["session"] = id(entry.session).into();
    fields["zxid"] = id(entry.zxid).into();
    fields
}

/// Returns data as text; bytes that are no text are replaced.
fn text(data: &Option<Arc<[u8]>>) -> Option<String> {
    data.as_deref()
        .map(|data| String::from_utf8_lossy(data).into_owned())
}

fn log(server: &Server, command: &Command<'_>) -> Outcome {
    let since = since(command)?;
    let entries: Vec<Value> = server
        .log()
        .iter()
        .filter(|entry| entry.n >= since)
        .map(entry)
        .collect();
    Ok(json!({ "log": entries }))
}

fn entry(entry: &LogEntry) -> Value {
    let kind = match entry.kind {
        LogKind::Closed(reason) => format!("closed {reason:?}").to_lowercase(),
        kind => format!("{kind:?}").to_lowercase(),
    };
    json!({
        "n": entry.n,
        "request": entry.request,
        "session": id(entry.session),
        "op": op_name(entry.op),
        "opcode": entry.opcode,
        "path": entry.path,
        "zxid": id(entry.zxid),
        "error": entry.error,
        "kind": kind,
    })
}

//! The fields of a command, parsed and checked.

use std::time::Duration;

use serde_json::Value;
use zookeeper_test_server::{CreateMode, Cut, Direction, Isolation, Loss, Match, Member, Op};

/// The operations with names; the others have numbers.
pub(crate) const OPS: [(&str, Op); 19] = [
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

const MEMBERS: [(&str, Member); 6] = [
    ("current", Member::Current),
    ("behind", Member::Behind),
    ("cut_follower", Member::Cut(Isolation::Follower)),
    ("cut_deposed_leader", Member::Cut(Isolation::DeposedLeader)),
    ("read_only", Member::ReadOnly),
    ("down", Member::Down),
];

const MODES: [(&str, CreateMode); 5] = [
    ("persistent", CreateMode::Persistent),
    ("persistent_sequential", CreateMode::PersistentSequential),
    ("ephemeral", CreateMode::Ephemeral),
    ("ephemeral_sequential", CreateMode::EphemeralSequential),
    ("container", CreateMode::Container),
];

const LOSSES: [(&str, Loss); 3] = [
    ("close", Loss::Close),
    ("reset", Loss::Reset),
    ("stall", Loss::Stall),
];

const CUTS: [(&str, Cut); 2] = [("fin", Cut::Fin), ("reset", Cut::Reset)];

const DIRECTIONS: [(&str, Direction); 3] = [
    ("to_server", Direction::ToServer),
    ("to_client", Direction::ToClient),
    ("both", Direction::Both),
];

const ISOLATIONS: [(&str, Isolation); 2] = [
    ("follower", Isolation::Follower),
    ("deposed_leader", Isolation::DeposedLeader),
];

/// The fields of a match.
pub(crate) const MATCH: [&str; 8] = [
    "op",
    "opcode",
    "path",
    "path_prefix",
    "path_contains",
    "session",
    "nth",
    "times",
];

/// A command: an object of JSON.
#[derive(Debug)]
pub(crate) struct Command<'a>(pub(crate) &'a Value);

impl Command<'_> {
    /// Returns a field; `None` if there is none, or it is null.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn field(&self, name: &str) -> Result<&Value, String> {
        self.get(name).ok_or_else(|| format!("{name} is missing"))
    }

    pub(crate) fn text(&self, name: &str) -> Result<&str, String> {
        let value = self.field(name)?;
        value
            .as_str()
            .ok_or_else(|| format!("{name} is no text: {value}"))
    }

    pub(crate) fn optional_text(&self, name: &str) -> Result<Option<&str>, String> {
        self.get(name).map(|_| self.text(name)).transpose()
    }

    /// Returns a whole number that fits its type.
    pub(crate) fn number<T: TryFrom<i64>>(&self, name: &str) -> Result<T, String> {
        let value = self.field(name)?;
        let number = value
            .as_i64()
            .ok_or_else(|| format!("{name} is no number: {value}"))?;
        T::try_from(number).map_err(|_| format!("{name} is out of range: {number}"))
    }

    pub(crate) fn milliseconds(&self, name: &str) -> Result<Duration, String> {
        self.number(name).map(Duration::from_millis)
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, String> {
        let value = self.field(name)?;
        value
            .as_bool()
            .ok_or_else(|| format!("{name} is neither true nor false: {value}"))
    }

    /// Returns a session: a number, or a text such as `0x1000`, for languages whose numbers are too
    /// small.
    pub(crate) fn session(&self, name: &str) -> Result<i64, String> {
        let value = self.field(name)?;
        let of_text = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16)
                .ok()
                .map(|id| i64::from_ne_bytes(id.to_ne_bytes())),
            None => text.parse().ok(),
        };
        let id = value.as_i64().or_else(|| value.as_str().and_then(of_text));
        id.ok_or_else(|| format!("{name} is no session id: {value}"))
    }

    fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<T, String> {
        let chosen = self.text(name)?;
        let found = choices
            .iter()
            .find(|(choice, _)| *choice == chosen)
            .map(|(_, value)| *value);
        let all = || {
            choices
                .iter()
                .map(|(choice, _)| *choice)
                .collect::<Vec<_>>()
                .join(", ")
        };
        found.ok_or_else(|| format!("{name} is {chosen}, and none of {}", all()))
    }

    pub(crate) fn member(&self) -> Result<Member, String> {
        self.choice("member", &MEMBERS)
    }

    pub(crate) fn mode(&self) -> Result<CreateMode, String> {
        self.choice("mode", &MODES)
    }

    pub(crate) fn loss(&self) -> Result<Loss, String> {
        self.choice("loss", &LOSSES)
    }

    pub(crate) fn cut(&self) -> Result<Cut, String> {
        self.choice("how", &CUTS)
    }

    pub(crate) fn direction(&self) -> Result<Direction, String> {
        self.choice("direction", &DIRECTIONS)
    }

    pub(crate) fn isolation(&self) -> Result<Isolation, String> {
        self.choice("isolation", &ISOLATIONS)
    }

    /// Refuses a field that is not among these.
    pub(crate) fn has_only(&self, names: &[&str]) -> Result<(), String> {
        let mut fields = self
            .0
            .as_object()
            .into_iter()
            .flat_map(|fields| fields.keys());
        match fields.find(|name| *name != "do" && !names.contains(&name.as_str())) {
            Some(name) => Err(format!("there is no field {name}")),
            None => Ok(()),
        }
    }

    /// Returns the match of a fault.
    pub(crate) fn matcher(&self) -> Result<Match, String> {
        let mut matcher = match self.get("op") {
            Some(_) => Match::op(self.choice("op", &OPS)?),
            None => Match::any(),
        };
        if self.get("opcode").is_some() {
            matcher = matcher.opcode(self.number("opcode")?);
        }
        if let Some(path) = self.optional_text("path")? {
            matcher = matcher.path(path);
        }
        if let Some(prefix) = self.optional_text("path_prefix")? {
            matcher = matcher.path_prefix(prefix);
        }
        if let Some(part) = self.optional_text("path_contains")? {
            matcher = matcher.path_contains(part);
        }
        if self.get("session").is_some() {
            matcher = matcher.session(self.session("session")?);
        }
        if self.get("nth").is_some() {
            matcher = matcher.nth(self.number("nth")?);
        }
        match self.get("times") {
            None => Ok(matcher),
            Some(Value::String(text)) if text == "always" => Ok(matcher.always()),
            Some(_) => Ok(matcher.times(self.number("times")?)),
        }
    }
}

//! Behaviours, and the back-ends on which each runs.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use test_support::{SOON, Suite, peers};

use super::Env;
use super::backend::Backend;
use super::backend::Need;
use super::random::seed;

type Running<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
type Run = Arc<dyn for<'a> Fn(&'a Env) -> Running<'a> + Send + Sync>;

/// A behaviour of the library, tested on every back-end that can show it.
pub(crate) struct Behaviour {
    name: &'static str,
    run: Run,
    backends: Vec<Backend>,
    needs: Vec<Need>,
    curator: Option<&'static str>,
    not_on_keeper: Option<&'static str>,
}

impl Behaviour {
    pub(crate) fn new(
        name: &'static str,
        run: impl for<'a> Fn(&'a Env) -> Running<'a> + Send + Sync + 'static,
    ) -> Self {
        let backends = vec![Backend::InProcess, Backend::Standalone];
        Self {
            name,
            run: Arc::new(run),
            backends,
            needs: Vec::new(),
            curator: None,
            not_on_keeper: None,
        }
    }

    /// Runs the behaviour with broken connections too, which must not change it.
    pub(crate) fn with_faults(mut self) -> Self {
        self.backends.push(Backend::Faults);
        self
    }

    /// Runs the behaviour on an ensemble too, which could make a difference.
    pub(crate) fn also_on_ensemble(mut self) -> Self {
        self.backends.push(Backend::Ensemble);
        self
    }

    /// Runs the behaviour on an ensemble only, because nothing else can show it.
    pub(crate) fn only_on_ensemble(mut self) -> Self {
        self.backends = vec![Backend::Ensemble];
        self
    }

    /// Runs the behaviour on one back-end, because it does not depend on the servers.
    pub(crate) fn in_process_only(mut self) -> Self {
        self.backends = vec![Backend::InProcess];
        self
    }

    pub(crate) fn needs(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    /// Excludes ClickHouse Keeper, for this reason.
    pub(crate) fn not_on_keeper(mut self, reason: &'static str) -> Self {
        self.not_on_keeper = Some(reason);
        self
    }

    /// Names the test of Curator's from which the behaviour was ported.
    pub(crate) fn curator(mut self, test: &'static str) -> Self {
        self.curator = Some(test);
        self
    }
}

/// Lists a group of behaviours: `behaviours![first.needs(..), second, ..]`.
macro_rules! behaviours {
    ($($function:ident $(.$option:ident($($argument:expr),*))*),* $(,)?) => {
        vec![$(
            $crate::harness::Behaviour::new(stringify!($function), |env| Box::pin($function(env)))
                $(.$option($($argument),*))*
        ),*]
    };
}
pub(crate) use behaviours;

/// All behaviours.
#[derive(Debug)]
pub(crate) struct Registry {
    suite: Suite,
}

impl Registry {
    pub(crate) fn new() -> Self {
        let mut suite = Suite::new();
        // Most behaviours wait for replies, and many for a session to expire.
        suite.at_once(16);
        Self { suite }
    }

    /// Adds a group of behaviours, each on all of its back-ends.
    pub(crate) fn add(&mut self, group: &str, behaviours: &[Behaviour]) {
        for backend in Backend::ALL {
            for behaviour in behaviours
                .iter()
                .filter(|behaviour| behaviour.backends.contains(&backend))
            {
                self.add_on(backend, group, behaviour);
            }
        }
    }

    /// Adds the behaviours of a group that depend on a server, on the model of ClickHouse Keeper.
    pub(crate) fn add_on_keeper(&mut self, group: &str, behaviours: &[Behaviour]) {
        let all = behaviours
            .iter()
            .filter(|behaviour| behaviour.backends.contains(&Backend::Standalone));
        for behaviour in all {
            match behaviour.not_on_keeper {
                None => self.add_on(Backend::Keeper, group, behaviour),
                Some(reason) => {
                    let name = format!("{}::{group}::{}", Backend::Keeper, behaviour.name);
                    self.suite.skip("", &name, reason);
                }
            }
        }
    }

    fn add_on(&mut self, backend: Backend, group: &str, behaviour: &Behaviour) {
        let curator = behaviour
            .curator
            .map(|test| format!(" (Curator's {test})"))
            .unwrap_or_default();
        let name = format!("{backend}::{group}::{}{curator}", behaviour.name);
        let own_servers = behaviour.needs.contains(&Need::OwnServers);
        let run = Arc::clone(&behaviour.run);
        if let Some(reason) = behaviour.needs.iter().find_map(|need| backend.lacks(*need)) {
            self.suite.skip("", &name, reason);
        } else if backend.is_real() {
            let trial = name.clone();
            let test = move |_peer| perform(&run, backend, own_servers, &trial);
            self.suite.add_needing("", &name, peers::zookeeper(), test);
        } else {
            let trial = name.clone();
            self.suite.add("", &name, move || {
                perform(&run, backend, own_servers, &trial);
            });
        }
    }

    pub(crate) fn run(self) -> ! {
        remember_panics();
        println!("seed {}: SUITE_SEED={} repeats this run", seed(), seed());
        self.suite.run()
    }
}

/// Runs a behaviour in a separate runtime.
fn perform(run: &Run, backend: Backend, own_servers: bool, name: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let env = runtime.block_on(async {
        let env = Env::new(backend, own_servers, name).await;
        run(&env).await;
        env
    });
    // The tasks that a behaviour has left behind end with the runtime.
    runtime.shutdown_timeout(SOON);
    env.end();
    let panics = std::mem::take(&mut *PANICS.lock().unwrap());
    assert!(
        panics.is_empty(),
        "expected no panic of the library, in this behaviour or one that runs beside it: {panics:?}"
    );
}

/// The panics on the threads of the library's sessions, which tokio catches and does not report.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn remember_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() == Some("zk-session") {
            PANICS.lock().unwrap().push(panic.to_string());
        }
        usual(panic);
    }));
}

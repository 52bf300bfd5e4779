//! Behaviours, and on what they run.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use test_support::{SOON, Suite, peers};

use super::Env;
use super::backend::Backend;
use super::backend::Need;
use super::random::seed;

type Running<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
type Run = Arc<dyn for<'a> Fn(&'a Env) -> Running<'a> + Send + Sync>;

/// Something that the library does, on any back-end that can show it.
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

    /// Broken connections must not matter to it.
    pub(crate) fn whatever_breaks(mut self) -> Self {
        self.backends.push(Backend::Faults);
        self
    }

    /// An ensemble could make a difference.
    pub(crate) fn on_an_ensemble_too(mut self) -> Self {
        self.backends.push(Backend::Ensemble);
        self
    }

    /// Nothing else can show it.
    pub(crate) fn only_on_an_ensemble(mut self) -> Self {
        self.backends = vec![Backend::Ensemble];
        self
    }

    /// The servers play no part, or all the same one.
    pub(crate) fn once(mut self) -> Self {
        self.backends = vec![Backend::InProcess];
        self
    }

    pub(crate) fn needs(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    /// Why ClickHouse Keeper cannot show it.
    pub(crate) fn not_on_keeper(mut self, reason: &'static str) -> Self {
        self.not_on_keeper = Some(reason);
        self
    }

    /// Which test of Curator's it is.
    pub(crate) fn curator(mut self, test: &'static str) -> Self {
        self.curator = Some(test);
        self
    }
}

/// Writes a group of behaviours down: `behaviours![first.needs(..), second, ..]`.
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
        // Many wait for a session to expire, most of the others for replies.
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

    /// Adds those of a group that a server plays a part in, on the model of ClickHouse Keeper.
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
        println!("seed {}: SUITE_SEED={} does the same again", seed(), seed());
        self.suite.run()
    }
}

/// Runs a behaviour in a runtime of its own.
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
    // With it end the tasks that a behaviour has left behind.
    runtime.shutdown_timeout(SOON);
    env.end();
    let panics = std::mem::take(&mut *PANICS.lock().unwrap());
    assert!(
        panics.is_empty(),
        "the library panicked, here or in a behaviour beside this one: {panics:?}"
    );
}

/// What panicked on the threads of the library's sessions. Its tasks die of a panic without a word.
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

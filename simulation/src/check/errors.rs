//! An error is true: it says busy only if others were there, no server only if something was
//! broken, and so on.

/// The facts about a call that has ended with an error.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scene {
    /// Nothing was broken, not yet or no longer, and there was time for all requests of the call.
    pub undisturbed: bool,
    /// Since long before the call began, no fault has kept answers of servers from clients.
    pub reachable: bool,
    /// Another contender was there, or may have been.
    pub contended: bool,
    /// The servers' log says that a permission was denied to this client.
    pub denied: bool,
    /// The client was being closed.
    pub closing: bool,
    /// Other processes delete nodes in this world, even when nothing else is broken.
    pub broken: bool,
    /// The limit of the semaphore was changed.
    pub resized: bool,
    /// A lease was asked for.
    pub leased: bool,
}

impl Scene {
    /// Returns whether a client may be without an answer of a server.
    fn may_be_cut_off(&self) -> bool {
        !self.undisturbed && !self.reachable
    }
}

/// Judges an error of a participant of an election, which tries again where no server answers, and
/// waits for others.
pub fn of_lead(variant: &str, scene: Scene) -> Result<(), String> {
    let may_be = match variant {
        "NoAuth" | "Orphaned" => scene.denied,
        "Closed" => scene.closing,
        "Rejected" => !scene.undisturbed || scene.broken,
        _ => false,
    };
    if may_be {
        Ok(())
    } else {
        Err(format!(
            "does not lead for {variant}, which is not so: {scene:?}"
        ))
    }
}

/// Judges an error of a counter.
pub fn of_count(variant: &str, scene: Scene) -> Result<(), String> {
    let may_be = match variant {
        "Connection" | "Unknown" => scene.may_be_cut_off(),
        "Contended" => scene.contended,
        "NoAuth" => scene.denied,
        "Closed" => scene.closing,
        _ => false,
    };
    if may_be {
        Ok(())
    } else {
        Err(format!(
            "counts nothing for {variant}, which is not so: {scene:?}"
        ))
    }
}

/// Judges an error of a job beside those of its lock, and its losses. Jobs of worlds fail on
/// purpose.
pub fn of_job(variant: &str, scene: Scene) -> Result<(), String> {
    let may_be = match variant {
        "Connection" | "Unknown" => scene.may_be_cut_off(),
        "NoAuth" => scene.denied,
        "Closed" => scene.closing,
        "NotRecorded" => !scene.undisturbed || scene.broken || scene.denied || scene.closing,
        "Failed" => true,
        _ => false,
    };
    if may_be {
        Ok(())
    } else {
        Err(format!(
            "does no job for {variant}, which is not so: {scene:?}"
        ))
    }
}

/// Judges an error of a call for a lock, by the name of its variant.
pub fn of_call(variant: &str, scene: Scene) -> Result<(), String> {
    let may_be = match variant {
        "TimedOut" | "WouldBlock" => scene.contended,
        "Connection" => scene.may_be_cut_off(),
        "NoAuth" | "Orphaned" => scene.denied,
        "Closed" => scene.closing,
        "NodeDeleted" | "Rejected" => !scene.undisturbed || scene.broken,
        "TooManyPermits" | "LimitMismatch" => scene.resized,
        "LeaseOver" => scene.leased,
        _ => false,
    };
    if may_be {
        Ok(())
    } else {
        Err(format!(
            "was returned {variant}, which is not true: {scene:?}"
        ))
    }
}

/// Judges a loss, by the name of its reason.
pub fn of_loss(reason: &str, scene: Scene) -> Result<(), String> {
    let may_be = match reason {
        "LeaseExpired" | "SessionExpired" => scene.may_be_cut_off(),
        "NodeDeleted" => !scene.undisturbed || scene.broken,
        "Closed" => scene.closing,
        "SessionReplaced" => false,
        _ => true,
    };
    if may_be {
        Ok(())
    } else {
        Err(format!(
            "was notified of a loss by {reason}, which is not true: {scene:?}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_error_with_false_claim() {
        let quiet = Scene {
            undisturbed: true,
            ..Scene::default()
        };
        let so = [
            (
                "TimedOut",
                Scene {
                    contended: true,
                    ..quiet
                },
            ),
            (
                "WouldBlock",
                Scene {
                    contended: true,
                    ..quiet
                },
            ),
            ("Connection", Scene::default()),
            (
                "NoAuth",
                Scene {
                    denied: true,
                    ..quiet
                },
            ),
            (
                "Orphaned",
                Scene {
                    denied: true,
                    ..quiet
                },
            ),
            (
                "Closed",
                Scene {
                    closing: true,
                    ..quiet
                },
            ),
            (
                "NodeDeleted",
                Scene {
                    broken: true,
                    ..quiet
                },
            ),
            (
                "TooManyPermits",
                Scene {
                    resized: true,
                    ..quiet
                },
            ),
            (
                "LeaseOver",
                Scene {
                    leased: true,
                    ..quiet
                },
            ),
        ];
        for (variant, scene) in so {
            of_call(variant, scene).unwrap();
            of_call(variant, quiet).unwrap_err();
        }
        of_call("MixedRecipes", Scene::default()).unwrap_err();
    }

    #[test]
    fn server_silence_needs_a_cause() {
        let calm = Scene {
            reachable: true,
            ..Scene::default()
        };
        of_call("Connection", calm).unwrap_err();
        of_loss("LeaseExpired", calm).unwrap_err();
        of_loss("SessionExpired", calm).unwrap_err();
        of_count("Unknown", calm).unwrap_err();
        of_job("Unknown", calm).unwrap_err();
    }

    #[test]
    fn checks_errors_of_elections_counters_jobs() {
        let quiet = Scene {
            undisturbed: true,
            ..Scene::default()
        };
        let (denied, closing) = (
            Scene {
                denied: true,
                ..quiet
            },
            Scene {
                closing: true,
                ..quiet
            },
        );
        for of in [of_lead, of_count, of_job] {
            of("NoAuth", denied).unwrap();
            of("NoAuth", quiet).unwrap_err();
            of("Closed", closing).unwrap();
            of("Closed", quiet).unwrap_err();
        }
        of_lead("Connection", Scene::default()).unwrap_err();
        of_count("Connection", Scene::default()).unwrap();
        of_count("Connection", quiet).unwrap_err();
        of_count(
            "Contended",
            Scene {
                contended: true,
                ..quiet
            },
        )
        .unwrap();
        of_count("Contended", quiet).unwrap_err();
        of_count("Overflow", Scene::default()).unwrap_err();
        of_job("NotRecorded", Scene::default()).unwrap();
        of_job("NotRecorded", quiet).unwrap_err();
        of_job("Connection", quiet).unwrap_err();
        of_job("Failed", quiet).unwrap();
    }

    #[test]
    fn flags_loss_without_a_cause() {
        let quiet = Scene {
            undisturbed: true,
            ..Scene::default()
        };
        for (reason, scene) in [
            ("LeaseExpired", Scene::default()),
            ("SessionExpired", Scene::default()),
            (
                "NodeDeleted",
                Scene {
                    broken: true,
                    ..quiet
                },
            ),
            (
                "Closed",
                Scene {
                    closing: true,
                    ..quiet
                },
            ),
        ] {
            of_loss(reason, scene).unwrap();
            of_loss(reason, quiet).unwrap_err();
        }
        of_loss("LeaseOver", quiet).unwrap();
        of_loss("SessionReplaced", Scene::default()).unwrap_err();
    }
}

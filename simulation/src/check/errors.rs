//! An error says what was so: busy only if others were there, no server only if something was broken, and so on.

/// What is known of a call that has ended with an error.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scene {
    /// Nothing was broken any more, or yet, and there was time for all that the call sends.
    pub undisturbed: bool,
    /// Another contender was there, or may have been.
    pub contended: bool,
    /// A permission was denied in this world.
    pub denied: bool,
    /// The client was being closed.
    pub closing: bool,
    /// Other processes delete nodes in this world, when nothing else is broken, too.
    pub broken: bool,
    /// The limit of the semaphore was changed.
    pub resized: bool,
    /// A lease was asked for.
    pub leased: bool,
}

/// Judges an error of a call for a lock, by the name of its variant.
pub fn of_call(variant: &str, scene: Scene) -> Result<(), String> {
    let may_be = match variant {
        "TimedOut" | "WouldBlock" => scene.contended,
        "Connection" => !scene.undisturbed,
        "NoAuth" | "Orphaned" => scene.denied,
        "Closed" => scene.closing,
        "NodeDeleted" | "Rejected" => !scene.undisturbed || scene.broken,
        "TooManyPermits" | "LimitMismatch" => scene.resized,
        "LeaseOver" => scene.leased,
        _ => false,
    };
    if may_be { Ok(()) } else { Err(format!("is told {variant}, which is not so: {scene:?}")) }
}

/// Judges a loss, by the name of its reason.
pub fn of_loss(reason: &str, scene: Scene) -> Result<(), String> {
    let may_be = match reason {
        "LeaseExpired" | "SessionExpired" => !scene.undisturbed,
        "NodeDeleted" => !scene.undisturbed || scene.broken,
        "Closed" => scene.closing,
        "SessionReplaced" => false,
        _ => true,
    };
    if may_be { Ok(()) } else { Err(format!("is told of a loss by {reason}, which is not so: {scene:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_says_what_was_not_so_is_a_violation() {
        let quiet = Scene { undisturbed: true, ..Scene::default() };
        let so = [
            ("TimedOut", Scene { contended: true, ..quiet }),
            ("WouldBlock", Scene { contended: true, ..quiet }),
            ("Connection", Scene::default()),
            ("NoAuth", Scene { denied: true, ..quiet }),
            ("Orphaned", Scene { denied: true, ..quiet }),
            ("Closed", Scene { closing: true, ..quiet }),
            ("NodeDeleted", Scene { broken: true, ..quiet }),
            ("TooManyPermits", Scene { resized: true, ..quiet }),
            ("LeaseOver", Scene { leased: true, ..quiet }),
        ];
        for (variant, scene) in so {
            of_call(variant, scene).unwrap();
            of_call(variant, quiet).unwrap_err();
        }
        of_call("MixedRecipes", Scene::default()).unwrap_err();
    }

    #[test]
    fn a_loss_without_a_cause_is_a_violation() {
        let quiet = Scene { undisturbed: true, ..Scene::default() };
        for (reason, scene) in [
            ("LeaseExpired", Scene::default()),
            ("SessionExpired", Scene::default()),
            ("NodeDeleted", Scene { broken: true, ..quiet }),
            ("Closed", Scene { closing: true, ..quiet }),
        ] {
            of_loss(reason, scene).unwrap();
            of_loss(reason, quiet).unwrap_err();
        }
        of_loss("LeaseOver", quiet).unwrap();
        of_loss("SessionReplaced", Scene::default()).unwrap_err();
    }
}

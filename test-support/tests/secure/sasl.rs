//! SASL DIGEST-MD5.

use std::time::Duration;

use tempfile::TempDir;
use test_support::{Options, ZooKeeper, unique_path, within};
use zookeeper_recipes::{
    Acl, ConnectError, ConnectionState, ErrorKind, InterProcessMutex, Permissions, RetryPolicy,
};

use super::Outcome;
use super::servers::{PASSWORD, Servers, USER, builder, run, with_sasl, write_jaas};

/// The pause before another try, where there must be none.
const PAUSE: Duration = Duration::from_millis(400);

pub(crate) fn user_is_known_to_acls(servers: &Servers) -> Outcome {
    run(async {
        let server = servers.mutual()?;
        let path = unique_path("sasl");
        for acl in [Acl::creator_all(), Acl::new("sasl", USER, Permissions::ALL)] {
            let builder = builder().sasl_digest(USER, PASSWORD).acl([acl]);
            let client = within("a session", builder.connect(&server.plain())).await?;
            let guard = within(
                "a free lock",
                InterProcessMutex::new(&client, &path)?.lock(),
            )
            .await?;
            let stranger = self::builder().connect(&server.plain()).await?;
            let error = InterProcessMutex::new(&stranger, &path)?
                .try_lock()
                .await
                .unwrap_err();
            assert!(error.to_string().contains("permission"), "{error}");
            guard.release().await?;
            client.close().await?;
            stranger.close().await?;
        }
        Ok(())
    })
}

pub(crate) fn wrong_password_is_refused_at_once(servers: &Servers) -> Outcome {
    run(async {
        let at = servers.mutual()?.plain();
        for (user, password) in [(USER, "geheim-wrong"), ("nobody", "geheim-wrong")] {
            let builder = builder().retry_policy(RetryPolicy::forever(PAUSE));
            let connect = builder.sasl_digest(user, password).connect(&at);
            let error = within("an answer", connect).await.unwrap_err();
            assert!(
                matches!(error, ConnectError::AuthFailed { .. }),
                "{error:?}"
            );
            assert!(!error.is_retryable());
            assert!(
                error
                    .to_string()
                    .contains("check the user and the password"),
                "{error}"
            );
        }
        Ok(())
    })
}

/// The password is not tried again and again: neither in the session's next connection, nor in the
/// next session.
pub(crate) fn later_wrong_password_closes_the_client() -> Outcome {
    run(async {
        let directory = TempDir::new()?;
        let server = ZooKeeper::standalone(&with_sasl(Options::new(), &directory, PASSWORD))?;
        let builder = builder().retry_policy(RetryPolicy::forever(PAUSE));
        let client = builder
            .sasl_digest(USER, PASSWORD)
            .connect(&server.connect_string())
            .await?;
        let mutex = InterProcessMutex::new(&client, unique_path("sasl"))?;
        let guard = within("a free lock", mutex.lock()).await?;
        write_jaas(&directory, "geheim-new");
        server.restart(0)?;
        let mut states = client.watch_state();
        within(
            "the end",
            states.wait_for(|state| *state == ConnectionState::Closed),
        )
        .await
        .ok_or("closed")?;
        assert!(!guard.is_held());
        let error = within("an answer", mutex.lock()).await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::AuthFailed), "{error:?}");
        Ok(())
    })
}

pub(crate) fn servers_without_sasl_ignore_the_user(servers: &Servers) -> Outcome {
    run(async {
        let server = servers.one_sided()?;
        let builder = builder().sasl_digest(USER, PASSWORD);
        let client = within("a session", builder.clone().connect(&server.plain())).await?;
        let mutex = InterProcessMutex::new(&client, unique_path("sasl"))?;
        within("a free lock", mutex.lock()).await?.release().await?;
        client.close().await?;
        let client = builder
            .acl([Acl::creator_all()])
            .connect(&server.plain())
            .await?;
        let mutex = InterProcessMutex::new(&client, unique_path("sasl"))?;
        let error = within("an answer", mutex.lock()).await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::Rejected), "{error:?}");
        client.close().await?;
        Ok(())
    })
}

pub(crate) fn required_sasl_refuses_anonymous_client() -> Outcome {
    run(async {
        let directory = TempDir::new()?;
        let options = with_sasl(Options::new(), &directory, PASSWORD)
            .setting("enforce.auth.enabled", "true")
            .setting("enforce.auth.schemes", "sasl");
        let server = ZooKeeper::standalone(&options)?;
        let error = within("an answer", builder().connect(&server.connect_string()))
            .await
            .unwrap_err();
        assert!(
            matches!(error, ConnectError::AuthFailed { .. }),
            "{error:?}"
        );
        let client = builder()
            .sasl_digest(USER, PASSWORD)
            .connect(&server.connect_string())
            .await?;
        client.close().await?;
        Ok(())
    })
}

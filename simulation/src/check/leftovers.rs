//! Callers that have ended leave no node, and clients that are closed leave nothing: no session, no
//! watch at a server, no task, no memory.

/// Memory that may be left of a world, in bytes: the report, and for each process its lease thread.
const ONCE: i64 = 16 << 10;
const PER_PROCESS: i64 = 1 << 10;

/// Checks that no node is left at a path when all contenders have ended.
pub fn no_node(path: &str, nodes: &[String]) -> Result<(), String> {
    if nodes.is_empty() {
        Ok(())
    } else {
        Err(format!("left in {path}: {nodes:?}"))
    }
}

/// Checks that no session is left on the servers, when all clients are closed and the sessions of
/// dead processes have expired.
pub fn no_session<S: std::fmt::Debug>(sessions: &[S]) -> Result<(), String> {
    if sessions.is_empty() {
        Ok(())
    } else {
        Err(format!("{} sessions left: {sessions:?}", sessions.len()))
    }
}

/// Checks that no watch is left on the servers, and no task but those from before the first client.
/// Each process keeps its lease thread.
pub fn nothing(watches: usize, tasks: usize, processes: u64) -> Result<(), String> {
    if watches > 0 {
        return Err(format!("{watches} watches are left"));
    }
    if tasks as u64 > processes {
        return Err(format!(
            "{tasks} tasks are left of {processes} processes, which may keep one each"
        ));
    }
    Ok(())
}

/// Checks the memory that is not freed when the runtime of a world has ended.
pub fn no_memory(bytes: i64, processes: u64) -> Result<(), String> {
    let most = ONCE + PER_PROCESS * processes as i64;
    if bytes <= most {
        Ok(())
    } else {
        Err(format!("{bytes} bytes are not freed: {most} are the most"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_leftover_nodes() {
        no_node("/a", &[]).unwrap();
        no_node("/a", &["/a/1".to_owned()]).unwrap_err();
        no_session::<u64>(&[]).unwrap();
        no_session(&[1]).unwrap_err();
        nothing(0, 3, 3).unwrap();
        nothing(1, 3, 3).unwrap_err();
        nothing(0, 4, 3).unwrap_err();
        no_memory(ONCE + 2 * PER_PROCESS, 2).unwrap();
        no_memory(ONCE + 2 * PER_PROCESS + 1, 2).unwrap_err();
    }
}

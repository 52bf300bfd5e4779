//! A multi-lock is granted as a whole: by a node and a token for each of its paths.

pub fn all(paths: &[String], nodes: &[String], tokens: usize) -> Result<(), String> {
    let is_below = |(path, node): (&String, &String)| node.starts_with(&format!("{path}/"));
    if nodes.len() != paths.len() || tokens != paths.len() || !paths.iter().zip(nodes).all(is_below)
    {
        return Err(format!(
            "the locks {paths:?} are held by {nodes:?}, with {tokens} tokens"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_partial_multi_lock() {
        let strings = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let paths = strings(&["/a", "/b"]);
        all(&paths, &strings(&["/a/1", "/b/1"]), 2).unwrap();
        all(&paths, &strings(&["/a/1", "/b/1"]), 1).unwrap_err();
        all(&paths, &strings(&["/a/1"]), 2).unwrap_err();
        all(&paths, &strings(&["/a/1", "/a/2"]), 2).unwrap_err();
    }
}

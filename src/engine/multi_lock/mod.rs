//! Several locks as one.
//! Only the multi-lock's face uses it. It never keeps a part of the locks: all or none.

pub(crate) mod multi;

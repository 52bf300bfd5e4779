//! Values that have no behaviour but their own checks: paths, options, tokens, contenders, text for
//! people. All folders may use them. They use only each other: no clock, task or request.

pub(crate) mod contender;
pub(crate) mod options;
pub(crate) mod path;
pub(crate) mod path_segment;
pub(crate) mod shown;
#[cfg(feature = "tls")]
pub(crate) mod tls;
pub(crate) mod token;

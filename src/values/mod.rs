//! Values that only check themselves: paths, options, tokens, contenders, text for people. All
//! modules may use them. They use only each other, and no task or request. Only `contender` reads a
//! clock, for display.

pub(crate) mod contender;
pub(crate) mod options;
pub(crate) mod path;
pub(crate) mod path_segment;
pub(crate) mod shown;
#[cfg(feature = "tls")]
pub(crate) mod tls;
pub(crate) mod token;

//! The form of an error with a path in each variant: what all of them say of themselves is written
//! once.

/// Defines an error whose variants are other errors, or have a `path` and a message.
///
/// `: kind` is behind the errors that can be those of a request. `{path}` in a message is the path,
/// and a variant marked `#[retryable]` is worth another call. `Debug` is the message, after the
/// names of the type and the variant.
macro_rules! error_enum {
    (@is_retryable) => {
        false
    };
    (@is_retryable retryable) => {
        true
    };
    (
        $(#[$docs:meta])*
        pub enum $error:ident {
            $($(#[$inner_docs:meta])* $inner:ident($source:ty) $(: $kind:ident)?,)+
        } or {
            $(
                $(#[doc = $variant_docs:literal])*
                #[error($text:literal $($argument:tt)*)]
                $(#[$retryable:ident])?
                $variant:ident { $($(#[$field_docs:meta])* $field:ident: $type:ident $(<$of:ident>)?,)* },
            )+
        }
    ) => {
        $(#[$docs])*
        #[derive(thiserror::Error, Clone)]
        #[non_exhaustive]
        pub enum $error {
            $(
                $(#[$inner_docs])*
                #[error(transparent)]
                $inner(#[from] $source),
            )+
            $(
                $(#[doc = $variant_docs])*
                #[error($text $($argument)*, path = $crate::values::shown::Quoted(path))]
                #[non_exhaustive]
                $variant {
                    /// The path, without the client's namespace.
                    path: String,
                    $($(#[$field_docs])* $field: $type $(<$of>)?,)*
                },
            )+
        }

        impl $error {
            /// Returns the kind of the request that failed; `None` of the other variants.
            #[must_use]
            pub fn kind(&self) -> Option<ErrorKind> {
                match self {
                    $($(Self::$inner(error) => error.$kind().into(),)?)+
                    _ => None,
                }
            }

            /// Returns `true` if the same call may succeed later with nothing else changed, and
            /// does nothing twice.
            #[must_use]
            pub fn is_retryable(&self) -> bool {
                match self {
                    $(Self::$inner(error) => error.is_retryable(),)+
                    $(Self::$variant { .. } => error_enum!(@is_retryable $($retryable)?),)+
                }
            }

            /// Returns the path that the error is about, without the client's namespace.
            #[must_use]
            pub fn path(&self) -> &str {
                match self {
                    $(Self::$inner(error) => error.path(),)+
                    $(Self::$variant { path, .. })|+ => path,
                }
            }
        }

        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let variant = match self {
                    $(Self::$inner { .. } => stringify!($inner),)+
                    $(Self::$variant { .. } => stringify!($variant),)+
                };
                write!(f, "{}::", stringify!($error))?;
                match self {
                    $(Self::$inner(error) => write!(f, "{variant}({error:?})"),)+
                    $(Self::$variant { .. })|+ => $crate::values::shown::debug(variant, self, f),
                }
            }
        }
    };
}

pub(crate) use error_enum;

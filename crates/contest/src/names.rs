//! The names of strategies, workloads and faults on the command line, and titles in tables.

/// An enum with a title in a few words for each variant, in the order of all tables.
macro_rules! titled {
    ($(#[$attribute:meta])* $vis:vis enum $type:ident { $($variant:ident $title:literal,)+ }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        $vis enum $type {
            $(#[doc = $title] $variant,)+
        }

        impl $type {
            /// All of them, in the order of the tables.
            $vis const ALL: [Self; [$($title),+].len()] = [$(Self::$variant),+];

            /// What it is, in a few words.
            $vis const fn title(self) -> &'static str {
                match self {
                    $(Self::$variant => $title,)+
                }
            }
        }
    };
}
pub(crate) use titled;

/// An enum with names and titles. `$wrong` begins the error for another name.
macro_rules! named {
    (
        $(#[$attribute:meta])* $vis:vis enum $type:ident, $wrong:literal {
            $($variant:ident $name:literal $title:literal,)+
        }
    ) => {
        $crate::names::titled! {
            $(#[$attribute])* $vis enum $type { $($variant $title,)+ }
        }

        impl $type {
            /// The name on the command line and in `contest.json`.
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                let found = Self::ALL.into_iter().find(|it| it.name() == name);
                found.ok_or_else(|| format!("{}{}", $wrong, [$($name),+].join(", ")))
            }
        }
    };
}
pub(crate) use named;

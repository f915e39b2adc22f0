//! Names of clients, processes, resources, keys and tokens: text that many records share.

/// An immutable text. A clone shares the text instead of copying it.
pub use arcstr::ArcStr as Name;

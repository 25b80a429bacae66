//! What is never plain, as far as the words of an item tell.
//!
//! The derives behind `plain` refuse it, too, but by a dozen errors that say nothing of what to do.
//! A type of the program's own may have any name. So a name counts only where it stands alone, and
//! that of a container only before its arguments.

use proc_macro::{Span, TokenStream, TokenTree};

/// Names, whether arguments follow, and what to use instead.
const NEVER: [(&str, bool, &str); 12] = [
    ("bool", false, BOOL),
    ("char", false, "a `u32`, which other PEs may give any value, and `char::from_u32`"),
    ("String", false, TEXT),
    ("str", false, TEXT),
    ("Option", true, "a value that stands for none, such as `u64::MAX`"),
    ("Vec", true, MEMORY),
    ("Box", true, MEMORY),
    ("Rc", true, MEMORY),
    ("Arc", true, MEMORY),
    ("HashMap", true, MEMORY),
    ("BTreeMap", true, MEMORY),
    ("Cow", true, MEMORY),
];
const BOOL: &str = "a `u8`, which other PEs may give any value";
const TEXT: &str = "an array of bytes, such as `[u8; 32]`";
const MEMORY: &str = "an array, or an index into a window: other PEs do not have this PE's memory";

/// The first thing in an item for which it cannot be plain, and what to do.
pub(crate) fn find(item: TokenStream) -> Option<(Span, String)> {
    let mut tokens = item.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(hash) if hash.as_char() == '#' => drop(tokens.next()),
            TokenTree::Ident(word) if ["enum", "union"].contains(&&*word.to_string()) => {
                let message = format!(
                    "`memonet::plain` is for structures: other PEs may write any bytes, and not \
                     all are an {word}'s. Use a number, such as a `u32`, and match on that"
                );
                return Some((word.span(), message));
            }
            TokenTree::Group(fields) => {
                if let Some(found) = in_fields(fields.stream()) {
                    return Some(found);
                }
            }
            _ => {}
        }
    }
    None
}

/// The first type that is never plain, among fields and what stands in their types.
fn in_fields(fields: TokenStream) -> Option<(Span, String)> {
    let tokens: Vec<TokenTree> = fields.into_iter().collect();
    let mark = |at: usize| match tokens.get(at) {
        Some(TokenTree::Punct(mark)) => Some(mark.as_char()),
        _ => None,
    };
    let is_path = |at: usize| mark(at) == Some(':') && mark(at + 1) == Some(':');
    for (at, token) in tokens.iter().enumerate() {
        let is_attribute = at > 0 && mark(at - 1) == Some('#');
        match token {
            TokenTree::Group(inner) if !is_attribute => {
                if let Some(found) = in_fields(inner.stream()) {
                    return Some(found);
                }
            }
            TokenTree::Punct(reference) if reference.as_char() == '&' => {
                return Some((reference.span(), refusal("a reference", MEMORY)));
            }
            // What follows is the length of an array.
            TokenTree::Punct(semicolon) if semicolon.as_char() == ';' => return None,
            TokenTree::Ident(name) => {
                let name = name.to_string();
                // It is plain, whatever it stands for.
                if name == "PhantomData" {
                    return None;
                }
                let is_field = mark(at + 1) == Some(':') && !is_path(at + 1);
                let is_part = is_path(at + 1) || at >= 2 && is_path(at - 2);
                let has_arguments = mark(at + 1) == Some('<');
                let never = NEVER.iter().find(|never| never.0 == name && never.1 == has_arguments);
                let is_number = name == "Option" && is_not_zero(&tokens[at + 1..]);
                if let (Some((.., instead)), false, false) = (never, is_field || is_number, is_part)
                {
                    return Some((token.span(), refusal(&format!("`{name}`"), instead)));
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether these arguments are a number that is not 0: its `Option` is as plain as the number.
fn is_not_zero(arguments: &[TokenTree]) -> bool {
    let mut words = arguments.iter().map(ToString::to_string).take_while(|word| word != ">");
    words.any(|word| word.starts_with("NonZero"))
}

fn refusal(what: &str, instead: &str) -> String {
    format!("{what} is not plain data, which other PEs may read and write as bytes: use {instead}")
}

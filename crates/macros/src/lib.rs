//! The attribute `memonet::plain`. Programs use it through the crate `memonet`.

mod refused;

use proc_macro::{Delimiter, Spacing, Span, TokenStream, TokenTree};

/// `memonet::plain`, which the crate `memonet` documents.
#[proc_macro_attribute]
pub fn plain(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let name = match crate_name(arguments) {
        Ok(name) => name,
        Err(message) => return error(Span::call_site(), message),
    };
    if let Some((at, message)) = refused::find(item.clone()) {
        // The item stays, so that the program's uses of it are no further errors of names.
        let mut all = error(at, &message);
        all.extend(item);
        return all;
    }
    let written = Attributes::of(item.clone());
    let mut derives = String::new();
    for (derive, is_there) in [("clone::Clone", written.clone), ("marker::Copy", written.copy)] {
        if !is_there {
            derives += &format!("::core::{derive}, ");
        }
    }
    for derive in ["FromBytes", "IntoBytes", "Immutable"] {
        derives += &format!("::{name}::zerocopy::{derive}, ");
    }
    let repr = if written.repr { "" } else { "#[repr(C)]" };
    let attributes =
        format!("#[derive({derives})] #[zerocopy(crate = \"{name}::zerocopy\")] {repr}");
    let mut all: TokenStream = attributes.parse().expect("attributes are tokens");
    all.extend(item);
    all
}

/// Says that plain data have an attribute: a derive cannot add the layout that they need.
#[proc_macro_derive(Plain)]
pub fn derive_plain(_item: TokenStream) -> TokenStream {
    let message = "plain data have an attribute, which also sets their layout: write `#[memonet::plain]` above the type, in place of this derive";
    error(Span::call_site(), message)
}

/// An error of the compiler's, which points at this place.
fn error(at: Span, message: &str) -> TokenStream {
    let error: TokenStream =
        format!("::core::compile_error! {{ {message:?} }}").parse().expect("a macro's call");
    let at = |mut token: TokenTree| {
        token.set_span(at);
        token
    };
    error.into_iter().map(at).collect()
}

/// The name in `crate = "name"`; `memonet` where nothing is said.
fn crate_name(arguments: TokenStream) -> Result<String, &'static str> {
    let said: Vec<String> = arguments.into_iter().map(|token| token.to_string()).collect();
    match said.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok("memonet".into()),
        ["crate", "=", name] if name.len() > 2 && name.starts_with('"') => {
            Ok(name.trim_matches('"').into())
        }
        _ => Err(
            "`plain` takes nothing, or `crate = \"name\"`: the name of the dependency `memonet`",
        ),
    }
}

/// What a structure's own attributes say.
#[derive(Default)]
struct Attributes {
    clone: bool,
    copy: bool,
    repr: bool,
}

impl Attributes {
    fn of(item: TokenStream) -> Attributes {
        let (mut found, mut after_hash) = (Attributes::default(), false);
        for token in item {
            match token {
                TokenTree::Group(group)
                    if after_hash && group.delimiter() == Delimiter::Bracket =>
                {
                    found.note(group.stream());
                }
                // The fields: attributes in there are not the structure's.
                TokenTree::Group(group) if group.delimiter() != Delimiter::Bracket => break,
                TokenTree::Punct(hash) if hash.as_char() == '#' => {
                    after_hash = hash.spacing() == Spacing::Alone;
                    continue;
                }
                _ => {}
            }
            after_hash = false;
        }
        found
    }

    /// Notes one attribute.
    fn note(&mut self, attribute: TokenStream) {
        let mut tokens = attribute.into_iter();
        let Some(TokenTree::Ident(name)) = tokens.next() else { return };
        self.repr |= name.to_string() == "repr";
        if name.to_string() != "derive" {
            return;
        }
        let Some(TokenTree::Group(traits)) = tokens.next() else { return };
        for derived in traits.stream() {
            self.clone |= derived.to_string() == "Clone";
            self.copy |= derived.to_string() == "Copy";
        }
    }
}

//! The programs together call every function of the API.

use crate::program::{Language, PROGRAMS, Source, c, called};
use std::collections::BTreeSet;

#[test]
fn every_function_is_called_by_some_program() {
    let called: BTreeSet<String> = PROGRAMS.iter().flat_map(|file| called(c(file))).collect();
    let missing: Vec<_> =
        memonet_shmem_api::symbols().into_iter().filter(|name| !called.contains(name)).collect();
    assert!(missing.is_empty(), "no program in tests/api/c calls {missing:?}");
}

#[test]
fn names_for_all_types_lead_to_the_functions_for_each() {
    // One of two names of a type, such as `long` and `int64_t`, is enough.
    for language in [Language::GenericC, Language::Cxx] {
        for file in crate::families::GENERIC {
            let plain: BTreeSet<String> =
                called(c(file)).into_iter().filter(|name| is_of_first_name(name)).collect();
            let generic: BTreeSet<String> = called(Source { file, language }).into_iter().collect();
            let missing: Vec<_> = plain.iter().filter(|&name| !generic.contains(name)).collect();
            assert!(missing.is_empty(), "{file} as {language:?} does not call {missing:?}");
        }
    }
}

/// Whether a function is for a type that is not another one's second name, and has a name for all
/// types.
fn is_of_first_name(function: &str) -> bool {
    let table = memonet_shmem_api::table();
    let types =
        |second: bool| table.types.iter().filter(move |kind| kind.same_as.is_some() == second);
    let words: Vec<_> = function.split('_').collect();
    let of = |name: &String| words.contains(&name.as_str());
    types(false).any(|kind| of(&kind.name))
        && !types(true).any(|kind| of(&kind.name))
        && !function.ends_with("_to_all")
}

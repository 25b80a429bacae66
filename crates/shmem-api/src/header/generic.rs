//! Names that stand for all types: `_Generic` macros in C11, overloaded functions in C++.

use crate::header::c::{by_class, forward, list_name, macro_over, pasted, section};
use crate::table::generic::{base, generic_name, generics};
use crate::table::model::{Table, Template};

const C11: &str = "
#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L

/* C11: the type of the first pointer chooses the function; a context may come before the pointer. */
#define MEMONET_FIRST_(first, ...) first
#define MEMONET_FIRST(...) MEMONET_FIRST_(__VA_ARGS__, 0)
#define MEMONET_SECOND_(first, second, ...) second
#define MEMONET_SECOND(...) MEMONET_SECOND_(__VA_ARGS__, 0, 0)
#define MEMONET_BY_FIRST(TYPES, ...) _Generic((MEMONET_FIRST(__VA_ARGS__)) TYPES)(__VA_ARGS__)
#define MEMONET_BY_SECOND(TYPES, ...) _Generic((MEMONET_SECOND(__VA_ARGS__)) TYPES)(__VA_ARGS__)
#define MEMONET_BY_CTX(TYPES, ITEM, CTX_ITEM, ...) \\
    _Generic((MEMONET_FIRST(__VA_ARGS__)) TYPES(ITEM), shmem_ctx_t: \\
        _Generic((MEMONET_SECOND(__VA_ARGS__)) TYPES(CTX_ITEM), default: memonet_no_function_for_this_type))(__VA_ARGS__)
struct memonet_no_function_for_this_type;
void memonet_no_function_for_this_type(struct memonet_no_function_for_this_type);

";

/// The macros for C11.
pub fn c11(table: &Table) -> String {
    let mut out = C11.to_owned();
    for (classes, template, operator) in generics(table) {
        let operator = operator.as_deref();
        let name = generic_name(template, operator);
        if classes.is_empty() {
            let (kind, chosen) = match template.forms().last() {
                Some(true) => ("shmem_ctx_t".to_owned(), template.function(None, None, true)),
                _ => (first_type(template), template.function(None, None, false)),
            };
            out += &format!(
                "#define {name}(...) _Generic((MEMONET_FIRST(__VA_ARGS__)), {kind}: {chosen}, default: {name})(__VA_ARGS__)\n"
            );
            continue;
        }
        let (place, constant) = template.telling().expect("a checked table");
        let short = base(template, operator).to_uppercase();
        let items: Vec<_> = template
            .forms()
            .map(|explicit| format!("MEMONET_{}_{short}", if explicit { "CTX" } else { "OF" }))
            .collect();
        for (item, explicit) in items.iter().zip(template.forms()) {
            let chosen = pasted(template, operator, explicit, "");
            let also = if constant { format!(", const T *: {chosen}") } else { String::new() };
            out += &format!("#define {item}(N, T) , T *: {chosen}{also}\n");
        }
        let lists = classes.iter().map(|class| list_name(table, class, true));
        let by = match (items.as_slice(), place) {
            ([item, ctx_item], 0) => {
                format!("CTX({}, {item}, {ctx_item}", lists.collect::<Vec<_>>().join(" "))
            }
            ([item], place) => {
                let types: Vec<_> = lists.map(|list| format!("{list}({item})")).collect();
                format!("{}({}", ["FIRST", "SECOND"][place], types.join(" "))
            }
            _ => unreachable!("a checked table"),
        };
        out += &format!("#define {name}(...) MEMONET_BY_{by}, __VA_ARGS__)\n");
    }
    out + "\n#endif /* C11 */\n"
}

/// The type of a template's first parameter, a handle.
fn first_type(template: &Template) -> String {
    template.prototype.named().next().map_or_else(String::new, |(kind, _)| kind.base.clone())
}

/// The overloads for C++.
pub fn cxx(table: &Table) -> String {
    let mut out = String::from("\n#ifdef __cplusplus\nextern \"C++\" {\n");
    out += &section("C++: overloaded functions; a context may come first");
    let overload =
        |template: &Template, operator: Option<&str>, callee: &str, t: &str, explicit: bool| {
            let prototype = &template.prototype;
            format!(
                "{}inline {}{}({}) {}",
                if template.inline { "MEMONET_OVERLOAD_INLINE " } else { "" },
                prototype.result.before_name(t),
                generic_name(template, operator),
                prototype.c_parameters(t, explicit),
                forward(&prototype.result, callee, &prototype.arguments(explicit))
            )
        };
    for module in &table.modules {
        let templates: Vec<_> = module.templates.iter().filter(|t| t.generic.is_some()).collect();
        for (class, rows) in by_class(table, &templates) {
            let mut lines = Vec::new();
            for (template, operator) in rows {
                for explicit in template.forms() {
                    let callee = pasted(template, operator.as_deref(), explicit, "");
                    lines.push(overload(template, operator.as_deref(), &callee, "T", explicit));
                }
            }
            out += &macro_over(table, &class, "MEMONET_OVERLOAD", &lines, true);
        }
        for template in templates.iter().filter(|t| t.words.is_empty()) {
            for explicit in template.forms() {
                let callee = template.function(None, None, explicit);
                if callee != generic_name(template, None) {
                    out += &(overload(template, None, &callee, "", explicit) + "\n");
                }
            }
        }
    }
    out + "\n} /* extern \"C++\" */\n#endif /* C++ */\n"
}

//! Names that stand for all types: `_Generic` macros in C11, overloaded functions in C++.

use crate::header::c::{by_class, c_name, forward, list_name, macro_over, pasted, section};
use crate::table::generic::{base, generic_name, generics, is_name};
use crate::table::model::{Over, Table, Template};

const C11: &str = "
#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L

/* C11: the type of the first pointer chooses the function; a context may come before the pointer. */
#define MEMONET_FIRST_(first, ...) first
#define MEMONET_FIRST(...) MEMONET_FIRST_(__VA_ARGS__, 0)
#define MEMONET_SECOND_(first, second, ...) second
#define MEMONET_SECOND(...) MEMONET_SECOND_(__VA_ARGS__, 0, 0)
#define MEMONET_BY_FIRST(TYPES, ...) _Generic((MEMONET_FIRST(__VA_ARGS__)) TYPES)(__VA_ARGS__)
#define MEMONET_BY_VOLATILE(TYPES, first, ...) _Generic((first) TYPES)((void *)(first), __VA_ARGS__)
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
            let also = match (constant, template.volatile) {
                (true, _) => format!(", const T *: {chosen}"),
                (_, true) => format!(", volatile T *: {chosen}"),
                _ => String::new(),
            };
            out += &format!("#define {item}(N, T) , T *: {chosen}{also}\n");
        }
        let lists = classes.iter().map(|class| list_name(table, class, true));
        let by = match (items.as_slice(), place) {
            ([item, ctx_item], 0) => {
                format!("CTX({}, {item}, {ctx_item}", lists.collect::<Vec<_>>().join(" "))
            }
            ([item], place) => {
                let types: Vec<_> = lists.map(|list| format!("{list}({item})")).collect();
                let by = if template.volatile { "VOLATILE" } else { ["FIRST", "SECOND"][place] };
                format!("{by}({}", types.join(" "))
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
    out += &volatiles(table);
    out + "\n} /* extern \"C++\" */\n#endif /* C++ */\n"
}

/// The overloads for C++ that take a pointer to something volatile.
fn volatiles(table: &Table) -> String {
    let overload = |template: &Template, name: &str, callee: &str, t: &str| {
        let prototype = &template.prototype;
        let (kind, first) = prototype.named().next().expect("a checked table");
        let arguments = prototype.arguments(false);
        let others = arguments.strip_prefix(first).expect("it is the first");
        let cast = format!("const_cast<{}>({first}){others}", kind.before_name(t));
        format!(
            "inline {}{name}(volatile {}) {}",
            prototype.result.before_name(t),
            prototype.c_parameters(t, false),
            forward(&prototype.result, callee, &cast)
        )
    };
    let mut out = section("C++: what PEs wait for, and locks, may be volatile");
    let templates: Vec<_> = table.templates().filter(|template| template.volatile).collect();
    for (class, rows) in by_class(table, &templates) {
        let (mut typed, mut generic) = (Vec::new(), Vec::new());
        for (template, operator) in rows {
            let callee = pasted(template, operator.as_deref(), false, "");
            typed.push(overload(template, &callee, &callee, "T"));
            if template.generic.is_some() {
                let name = generic_name(template, operator.as_deref());
                generic.push(overload(template, &name, &callee, "T"));
            }
        }
        out += &macro_over(table, &class, "MEMONET_VOLATILE", &typed, false);
        if !generic.is_empty() {
            out += &macro_over(table, &class, "MEMONET_VOLATILE", &generic, true);
        }
    }
    for template in templates {
        for (_, over) in table.groups(template).expect("a checked table") {
            let kind = match over {
                Over::Class(_) => continue,
                Over::Type(place) => Some(&table.types[place]),
                Over::Nothing => None,
            };
            let name = template.function(kind.map(|t| t.name.as_str()), None, false);
            // That of a name for all types is there already.
            if !is_name(table, &name) {
                let t = kind.map(c_name).unwrap_or_default();
                out += &(overload(template, &name, &name, &t) + "\n");
            }
        }
    }
    out
}

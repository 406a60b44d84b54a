/* Configs as text: the dump that loads back, and help from the tables. */
#include "base/config_text.h"

#include "base/config.h"
#include "base/wrap.h"
#include "base/yaml_tree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- changes ------------------------------------------------------------------------------- */

static void put_node(const weft_yaml_node *node, weft_buf *out)
{
    if (!node || node->kind == WEFT_YAML_NULL) {
        weft_buf_printf(out, "nothing");
    } else if (node->kind == WEFT_YAML_SCALAR) {
        weft_buf_printf(out, node->text[0] ? "%s" : "\"\"", node->text);
    } else {
        weft_buf_printf(out, node->kind == WEFT_YAML_MAP ? "{" : "[");
        for (int64_t i = 0; i < node->count; i++) {
            weft_buf_printf(out, "%s%s%s", i ? ", " : "",
                            node->kind == WEFT_YAML_MAP ? node->key[i] : "",
                            node->kind == WEFT_YAML_MAP ? ": " : "");
            put_node(node->child[i], out);
        }
        weft_buf_printf(out, node->kind == WEFT_YAML_MAP ? "}" : "]");
    }
}

static bool has_maps(const weft_yaml_node *node)
{
    return node && (node->kind == WEFT_YAML_MAP ||
                    (node->kind == WEFT_YAML_LIST && node->count && has_maps(node->child[0])));
}

static void put_changes(const weft_yaml_node *was, const weft_yaml_node *now, const char *path,
                        weft_buf *out)
{
    char below[300];
    if (has_maps(was) && has_maps(now) && was->kind == now->kind) {
        const bool map = now->kind == WEFT_YAML_MAP;
        for (int64_t i = 0; i < (map || now->count > was->count ? now->count : was->count); i++) {
            if (map)
                snprintf(below, sizeof below, "%s%s%s", path, path[0] ? "." : "", now->key[i]);
            else
                snprintf(below, sizeof below, "%s.%" PRId64, path, i);
            put_changes(map              ? weft_yaml_find(was, now->key[i])
                        : i < was->count ? was->child[i]
                                         : NULL,
                        i < now->count ? now->child[i] : NULL, below, out);
        }
        return;
    }
    weft_buf before = {0}, after = {0};
    put_node(was, &before);
    put_node(now, &after);
    if (before.data && after.data && strcmp(before.data, after.data))
        weft_buf_printf(out, "%s: %s, was %s\n", path, after.data, before.data);
    weft_buf_free(&before);
    weft_buf_free(&after);
}

weft_status weft_config_changes(const char *before, const char *now, weft_buf *out)
{
    weft_arena *arena = weft_arena_create();
    weft_yaml_node *was, *is;
    WEFT_TRY(WEFT_ALLOCATED(arena, "the config"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(
        weft_yaml_parse(arena, before, (int64_t)strlen(before), "the config before", false, &was));
    WEFT_GO(weft_yaml_parse(arena, now, (int64_t)strlen(now), "the config", false, &is));
    put_changes(was, is, "", out);
    WEFT_GO(weft_buf_check(out));
out:
    weft_arena_free(arena);
    return status;
}

/* ---- dump ---------------------------------------------------------------------------------- */

static void put_indent(weft_buf *out, int depth)
{
    weft_buf_printf(out, "%*s", 2 * depth, "");
}

/* Appends the shortest text that strtod reads back to exactly `value`. */
static void put_f64(weft_buf *out, double value)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    weft_buf_printf(out, "%s", text);
}

/* The character at `c`, if YAML rejects it unescaped or reads it as a line break: U+0080 to
 * U+009F, U+2028, U+2029, U+FFFE and U+FFFF. 0: another character. *bytes: its length in UTF-8. */
static unsigned special_character(const unsigned char *c, int *bytes)
{
    *bytes = c[0] == 0xc2 ? 2 : 3;
    if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f)
        return c[1];
    if (c[0] == 0xe2 && c[1] == 0x80 && (c[2] == 0xa8 || c[2] == 0xa9))
        return 0x2000u + (c[2] & 0x3fu);
    if (c[0] == 0xef && c[1] == 0xbf && c[2] >= 0xbe)
        return 0xffc0u + (c[2] & 0x3fu);
    return 0;
}

void weft_config_put_string(weft_buf *out, const char *text)
{
    int bytes;
    weft_buf_append(out, "\"", 1);
    for (const unsigned char *c = (const unsigned char *)(text ? text : ""); *c; c++) {
        const unsigned special = special_character(c, &bytes);
        if (*c == '"' || *c == '\\')
            weft_buf_printf(out, "\\%c", *c);
        else if (*c == '\n')
            weft_buf_printf(out, "\\n");
        else if (*c == '\t')
            weft_buf_printf(out, "\\t");
        else if (*c < 0x20 || *c == 0x7f)
            weft_buf_printf(out, "\\u%04x", *c);
        else if (special)
            weft_buf_printf(out, "\\u%04x", special);
        else
            weft_buf_append(out, c, 1);
        c += special ? bytes - 1 : 0;
    }
    weft_buf_append(out, "\"", 1);
}

static void put_scalar_list(weft_buf *out, const weft_key *key, const void *slot)
{
    const weft_i64_list *integers = slot;
    const weft_f64_list *reals = slot;
    const weft_string_list *strings = slot;
    weft_buf_printf(out, "[");
    for (int64_t i = 0; i < integers->count; i++) {
        weft_buf_printf(out, i ? ", " : "");
        if (key->type == WEFT_KEY_I64_LIST)
            weft_buf_printf(out, "%" PRId64, integers->item[i]);
        else if (key->type == WEFT_KEY_F64_LIST)
            put_f64(out, reals->item[i]);
        else
            weft_config_put_string(out, strings->item[i]);
    }
    weft_buf_printf(out, "]");
}

static void dump_section(const weft_section *section, const char *config, int depth, bool in_item,
                         bool earlier, weft_buf *out);

static void dump_section_list(const weft_key *key, const weft_section_list *list, int depth,
                              bool earlier, weft_buf *out)
{
    if (list->count == 0) {
        weft_buf_printf(out, " []\n");
        return;
    }
    weft_buf_printf(out, "\n");
    for (int64_t i = 0; i < list->count; i++) {
        put_indent(out, depth + 1);
        weft_buf_printf(out, "- ");
        const char *item = (const char *)list->item + i * (int64_t)key->section->bytes;
        dump_section(key->section, item, depth + 2, true, earlier, out);
    }
}

/* `in_item`: the first line continues after "- ". */
static void dump_section(const weft_section *section, const char *config, int depth, bool in_item,
                         bool earlier, weft_buf *out)
{
    if (section->key_count == 0)
        weft_buf_printf(out, "{}\n");
    for (int i = 0; i < section->key_count; i++) {
        const weft_key *key = &section->keys[i];
        const void *slot = config + key->offset;
        if (key->type == WEFT_KEY_GONE || key->type == WEFT_KEY_MOVED)
            continue;
        if (!in_item || i > 0)
            put_indent(out, depth);
        const char *name = earlier && key->earlier ? key->earlier : key->name;
        weft_buf_printf(out, "%.*s:", (int)strcspn(name, " "), name);
        if (key->type == WEFT_KEY_SECTION) {
            weft_buf_printf(out, "\n");
            dump_section(key->section, slot, depth + 1, false, earlier, out);
            continue;
        }
        if (key->type == WEFT_KEY_SECTION_LIST) {
            dump_section_list(key, slot, depth, earlier, out);
            continue;
        }
        weft_buf_printf(out, " ");
        switch (key->type) {
        case WEFT_KEY_BOOL:
            weft_buf_printf(out, "%s", *(const bool *)slot ? "true" : "false");
            break;
        case WEFT_KEY_I64:
            if (key->flag_word && *(const int64_t *)slot == 0 &&
                *(const bool *)(config + key->flag))
                weft_buf_printf(out, "%s", key->flag_word);
            else
                weft_buf_printf(out, "%" PRId64, *(const int64_t *)slot);
            break;
        case WEFT_KEY_F64: put_f64(out, *(const double *)slot); break;
        case WEFT_KEY_STRING: weft_config_put_string(out, *(const char *const *)slot); break;
        case WEFT_KEY_ENUM: weft_config_put_string(out, key->choices[*(const int *)slot]); break;
        case WEFT_KEY_TREE: {
            const weft_config_tree *tree = slot;
            weft_buf_printf(out, "%s", tree->json ? tree->json : "null");
            break;
        }
        default: put_scalar_list(out, key, slot); break;
        }
        weft_buf_printf(out, "\n");
    }
}

void weft_config_dump(const weft_section *root, const void *config, weft_buf *out)
{
    dump_section(root, config, 0, false, false, out);
}

void weft_config_dump_earlier(const weft_section *root, const void *config, weft_buf *out)
{
    dump_section(root, config, 0, false, true, out);
}

/* ---- help ---------------------------------------------------------------------------------- */

static const char *type_word(weft_key_type type)
{
    static const char *const words[] = {
        [WEFT_KEY_BOOL] = "true/false",  [WEFT_KEY_I64] = "integer",
        [WEFT_KEY_F64] = "number",       [WEFT_KEY_STRING] = "text",
        [WEFT_KEY_ENUM] = "choice",      [WEFT_KEY_I64_LIST] = "integers",
        [WEFT_KEY_F64_LIST] = "numbers", [WEFT_KEY_STRING_LIST] = "texts",
        [WEFT_KEY_SECTION] = "section",  [WEFT_KEY_SECTION_LIST] = "list of sections",
        [WEFT_KEY_TREE] = "mapping",     [WEFT_KEY_GONE] = "",
        [WEFT_KEY_MOVED] = "",
    };
    return words[type];
}

/* "integer (s), 1 to 100" */
static void put_type(weft_buf *out, const weft_key *key, const char *bar)
{
    if (key->type == WEFT_KEY_ENUM) {
        for (int i = 0; key->choices[i]; i++)
            weft_buf_printf(out, "%s%s", i ? bar : "", key->choices[i]);
        return;
    }
    weft_buf_printf(out, "%s", type_word(key->type));
    if (key->unit && key->unit[0])
        weft_buf_printf(out, " (%s)", key->unit);
    if (key->min != 0 || key->max != 0)
        weft_buf_printf(out, ", %.15g to %.15g", key->min, key->max);
}

static const char *default_text(const weft_key *key)
{
    if (key->type == WEFT_KEY_TREE)
        return "{}";
    if (!key->fallback)
        return "required";
    return key->fallback[0] ? key->fallback : "\"\"";
}

/* Markdown cells: a bar would end the cell. */
static void put_cell(weft_buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            weft_buf_append(out, "\\", 1);
        weft_buf_append(out, text, 1);
    }
}

/* The further names of a key, each in quotes, after `before` or a comma. */
static void put_names(weft_buf *out, const weft_key *key, const char *before, const char *quote)
{
    const char *const lists[] = {key->also, key->earlier};
    for (int k = 0; k < 2; k++)
        for (const char *at = lists[k]; at && *at; at += *at == ' ') {
            const int length = (int)strcspn(at, " ");
            weft_buf_printf(out, "%s%s%.*s%s", before, quote, length, at, quote);
            before = ", ";
            at += length;
        }
}

/* The path of a key's section for its keys: "data." or "stages.N.". */
static void section_prefix(const weft_key *key, const char *prefix, char out[256])
{
    snprintf(out, 256, "%s%s%s", prefix, key->name,
             key->type == WEFT_KEY_SECTION_LIST ? ".N." : ".");
}

static const char *section_help(const weft_key *key)
{
    return key->help && key->help[0] ? key->help : key->section->help;
}

enum { HELP_COLUMN = 31 };

static void help_key(const weft_key *key, const char *prefix, weft_buf *out)
{
    char name[256];
    snprintf(name, sizeof name, "%s%s", prefix, key->name);
    weft_buf_printf(out, "  %-28s", name);
    if (strlen(name) > 28)
        weft_buf_printf(out, "\n%*s", HELP_COLUMN, "");
    else
        weft_buf_printf(out, " ");
    weft_buf_wrap(out, HELP_COLUMN, key->help);
    if (key->also || key->earlier) {
        weft_buf names = {0};
        put_names(&names, key, "(also: ", "");
        weft_buf_printf(out, "\n%*s", HELP_COLUMN, "");
        weft_buf_wrap(out, HELP_COLUMN + 1, names.data ? names.data : "");
        weft_buf_printf(out, ")");
        weft_buf_free(&names);
    }
    weft_buf type = {0};
    put_type(&type, key, " | ");
    if (key->fallback || key->type == WEFT_KEY_TREE)
        weft_buf_printf(&type, "; default %s]\n", default_text(key));
    else
        weft_buf_printf(&type, "; required]\n");
    weft_buf_printf(out, "\n%*s[", HELP_COLUMN, "");
    weft_buf_wrap(out, HELP_COLUMN + 1, type.data ? type.data : "");
    weft_buf_printf(out, "\n");
    weft_buf_free(&type);
}

/* Writes the keys of `section`, then, with `nested`, its sections. */
static void help_text(const weft_section *section, const char *prefix, bool nested, weft_buf *out)
{
    for (int i = 0; i < section->key_count; i++) {
        const weft_key *key = &section->keys[i];
        if (!key->section && key->type != WEFT_KEY_GONE && key->type != WEFT_KEY_MOVED)
            help_key(key, prefix, out);
    }
    for (int i = 0; nested && i < section->key_count; i++) {
        const weft_key *key = &section->keys[i];
        if (!key->section)
            continue;
        char name[256];
        section_prefix(key, prefix, name);
        weft_buf_printf(out, "\n%.*s: ", (int)strlen(name) - 1, name);
        weft_buf_wrap(out, 2, section_help(key));
        weft_buf_printf(out, "\n");
        if (key->also || key->earlier) {
            put_names(out, key, "  (also: ", "");
            weft_buf_printf(out, ")\n");
        }
        help_text(key->section, name, true, out);
    }
}

static void help_markdown(const weft_section *section, const char *prefix, weft_buf *out)
{
    bool open = false;
    for (int i = 0; i < section->key_count; i++) {
        const weft_key *key = &section->keys[i];
        if (key->section || key->type == WEFT_KEY_GONE || key->type == WEFT_KEY_MOVED)
            continue;
        const bool optional = key->fallback || key->type == WEFT_KEY_TREE;
        if (!open)
            weft_buf_printf(out, "| key | type | default | meaning |\n|---|---|---|---|\n");
        open = true;
        weft_buf_printf(out, "| `%s%s` | ", prefix, key->name);
        put_type(out, key, ", ");
        weft_buf_printf(out, optional ? " | `" : " | ");
        put_cell(out, default_text(key));
        weft_buf_printf(out, optional ? "` | " : " | ");
        put_cell(out, key->help);
        put_names(out, key, "; also written ", "`");
        weft_buf_printf(out, " |\n");
    }
    for (int i = 0; i < section->key_count; i++) {
        const weft_key *key = &section->keys[i];
        if (!key->section)
            continue;
        bool list = key->type == WEFT_KEY_SECTION_LIST;
        weft_buf_printf(out, "\n`%s%s`%s: ", prefix, key->name, list ? " (a list)" : "");
        weft_buf_wrap(out, 0, section_help(key));
        put_names(out, key, "; also written ", "`");
        weft_buf_printf(out, "\n\n");
        char name[256];
        section_prefix(key, prefix, name);
        help_markdown(key->section, name, out);
    }
}

void weft_config_help(const weft_section *root, bool markdown, weft_buf *out)
{
    if (markdown)
        help_markdown(root, "", out);
    else
        help_text(root, "", true, out);
}

void weft_config_help_keys(const weft_section *root, weft_buf *out)
{
    help_text(root, "", false, out);
}

/* Returns the key of `section` that is a section named by the first `length` bytes of `name`. */
static const weft_key *find_section(const weft_section *section, const char *name, size_t length)
{
    for (int i = 0; i < section->key_count; i++) {
        const weft_key *key = &section->keys[i];
        if (key->section && strlen(key->name) == length && !memcmp(key->name, name, length))
            return key;
    }
    return NULL;
}

bool weft_config_help_section(const weft_section *root, const char *path, weft_buf *out)
{
    char prefix[256] = "";
    const weft_key *key = NULL;
    for (const weft_section *section = root; *path; section = key->section) {
        const size_t length = strcspn(path, ".");
        char longer[256];
        if (!(key = find_section(section, path, length)))
            return false;
        section_prefix(key, prefix, longer);
        snprintf(prefix, sizeof prefix, "%s", longer);
        path += length;
        if (!strncmp(path, ".N", 2) && (path[2] == '.' || !path[2]))
            path += 2;
        path += *path == '.';
    }
    if (!key)
        return false;
    weft_buf_printf(out, "%.*s: ", (int)strlen(prefix) - 1, prefix);
    weft_buf_wrap(out, 2, section_help(key));
    weft_buf_printf(out, "\n\n");
    help_text(key->section, prefix, true, out);
    return true;
}

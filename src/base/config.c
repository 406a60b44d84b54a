#include "base/config.h"

#include "base/config_text.h"
#include "base/fs.h"
#include "base/launcher.h"
#include "base/log.h"
#include "base/utf8.h"
#include "base/yaml_tree.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_CONFIG_BYTES = 16 << 20 };

/* ---- numbers and names --------------------------------------------------------------------- */

bool weft_parse_f64(const char *text, double *out)
{
    char *end;
    if (!text[0] || isspace((unsigned char)text[0]))
        return false;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value))
        return false;
    *out = value;
    return true;
}

/* The factor of "k", "MiB", ...; 0 if it is none. */
static double suffix_factor(const char *suffix)
{
    static const char letters[] = "kmgt";
    if (!suffix[0])
        return 1;
    if (!strcasecmp(suffix, "b"))
        return 1;
    const char *letter = strchr(letters, tolower((unsigned char)suffix[0]));
    if (!letter)
        return 0;
    bool binary = suffix[1] == 'i';
    const char *rest = suffix + 1 + binary;
    if (rest[0] && (strcasecmp(rest, "b") || rest[1]))
        return 0;
    return pow(binary ? 1024 : 1000, (double)(letter - letters + 1));
}

bool weft_parse_i64(const char *text, int64_t *out)
{
    char *end;
    if (!text[0] || isspace((unsigned char)text[0]))
        return false;
    errno = 0;
    int64_t whole = strtoll(text, &end, 10);
    if (end != text && !*end && errno == 0) { /* exact, also beyond 2^53 */
        *out = whole;
        return true;
    }
    if (strpbrk(text, "xXpPnN")) /* strtod would read hexadecimal, inf and nan */
        return false;
    double value = strtod(text, &end);
    double factor = end == text ? 0 : suffix_factor(*end == ' ' ? end + 1 : end);
    value *= factor;
    if (factor > 1) /* "77.3MiB": as reports print sizes */
        value = trunc(value);
    if (factor == 0 || !isfinite(value) || value != floor(value) || fabs(value) >= 0x1p63)
        return false;
    *out = (int64_t)value;
    return true;
}

/* Edit distance with transpositions; gives up (returns 100) on very long words. */
static int edit_distance(const char *a, const char *b)
{
    enum { MAX = 48 };
    int rows[3][MAX + 1];
    int la = (int)strlen(a), lb = (int)strlen(b);
    if (la > MAX || lb > MAX)
        return 100;
    for (int j = 0; j <= lb; j++)
        rows[0][j] = j;
    for (int i = 1; i <= la; i++) {
        int *now = rows[i % 3], *before = rows[(i + 2) % 3], *older = rows[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= lb; j++) {
            int ca = tolower((unsigned char)a[i - 1]), cb = tolower((unsigned char)b[j - 1]);
            int best = before[j - 1] + (ca != cb);
            if (before[j] + 1 < best)
                best = before[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && ca == tolower((unsigned char)b[j - 2]) &&
                cb == tolower((unsigned char)a[i - 2]) && older[j - 2] + 1 < best)
                best = older[j - 2] + 1;
            now[j] = best;
        }
    }
    return rows[la % 3][lb];
}

const char *weft_nearest_name(const char *word, const char *const *names, int count)
{
    const char *nearest = NULL;
    int length = (int)strlen(word), best = (length + 2) / 4; /* farther is not "near" */
    for (int i = 0; i < count; i++) {
        int distance = edit_distance(word, names[i]);
        /* "frame" for "frames_per_clip": the typed word is a prefix of the name */
        if (length >= 3 && !strncasecmp(word, names[i], (size_t)length) && distance > best)
            distance = best;
        /* "shift" for "flow_shift": the name is a part of the word */
        if (strlen(names[i]) >= 4 && strcasestr(word, names[i]) && distance > best)
            distance = best;
        if (distance < best || (distance == best && !nearest)) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}

/* ---- tables -------------------------------------------------------------------------------- */

/* Whether `name` is one of the words of `list`, which NULL has none of. */
static bool has_word(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; at && *at && length; at += strspn(at, " ")) {
        const size_t word = strcspn(at, " ");
        if (word == length && !memcmp(at, name, length))
            return true;
        at += word;
    }
    return false;
}

static const weft_key *find_key(const weft_section *section, const char *name)
{
    for (int i = 0; i < section->key_count; i++) {
        const weft_key *key = &section->keys[i];
        if (!strcmp(key->name, name) || has_word(key->also, name) || has_word(key->earlier, name))
            return key;
    }
    return NULL;
}

static bool is_listed(const weft_key *key)
{
    return key->type != WEFT_KEY_GONE && key->type != WEFT_KEY_MOVED;
}

/* Writes the dotted path of the first key with this name, now or earlier, anywhere below; true if
 * there is one. */
static bool find_at_other_level(const weft_section *section, const char *name, const char *prefix,
                                char path[256])
{
    for (int i = 0; i < section->key_count; i++) {
        const weft_key *key = &section->keys[i];
        char here[256];
        if (!is_listed(key))
            continue;
        snprintf(here, sizeof here, "%s%s", prefix, key->name);
        if (!strcmp(key->name, name) || has_word(key->earlier, name)) {
            memcpy(path, here, sizeof here);
            return true;
        }
        if (key->section && strlen(here) < sizeof here - 8) {
            strcat(here, key->type == WEFT_KEY_SECTION_LIST ? ".0." : ".");
            if (find_at_other_level(key->section, name, here, path))
                return true;
        }
    }
    return false;
}

static weft_status unknown_key(const weft_section *root, const weft_section *section,
                               const char *where, const char *path, const char *name)
{
    const char *names[256];
    int count = 0;
    for (int i = 0; i < section->key_count && count < 256; i++)
        if (is_listed(&section->keys[i]))
            names[count++] = section->keys[i].name;
    char location[320] = "";
    if (path[0])
        snprintf(location, sizeof location, " in '%s'", path);
    char other_path[256]; /* the right name at the wrong level beats a similar one */
    const char *near = other_path;
    if (!find_at_other_level(root, name, "", other_path))
        near = weft_nearest_name(name, names, count);
    if (near)
        return weft_error(WEFT_MSG_CONFIG_UNKNOWN_KEY, WEFT_AT(.file = where, .key = name),
                          "unknown key%s; did you mean '%s'?", location, near);
    weft_buf known = {0};
    for (int i = 0; i < count; i++)
        weft_buf_printf(&known, "%s%s", i ? ", " : "", names[i]);
    weft_status_code status =
        weft_error(WEFT_MSG_CONFIG_UNKNOWN_KEY, WEFT_AT(.file = where, .key = name),
                   "unknown key%s; known: %s", location, known.data ? known.data : "none");
    weft_buf_free(&known);
    return status;
}

/* An old key. */
static weft_status gone_key(const char *where, const char *path, const weft_key *key)
{
    char full[320];
    snprintf(full, sizeof full, "%s%s%s", path, path[0] ? "." : "", key->name);
    return weft_error(WEFT_MSG_CONFIG_UNKNOWN_KEY, WEFT_AT(.file = where, .key = full),
                      "this key was removed: %s", key->help);
}

/* ---- values -------------------------------------------------------------------------------- */

typedef struct renamed { /* a key that was written by an earlier name */
    const weft_key *key;
    const char *where, *before, *now; /* paths of the key */
} renamed;

enum { MAX_RENAMED = 256 };

typedef struct loader {
    weft_arena *arena;   /* borrowed; the struct points into it */
    weft_arena *scratch; /* the trees */
    const char *name;    /* the file's path in messages */
    const weft_section *root;
    int renamed_count;
    renamed renamed[MAX_RENAMED];
} loader;

static weft_status join_path(loader *l, const char *path, const char *name, const char **joined)
{
    *joined = weft_arena_printf(l->scratch, "%s%s%s", path, path[0] ? "." : "", name);
    return WEFT_ALLOCATED(*joined, "%s: the config", name);
}

/* Remembers for a notice that `key` of the section at `path` was written as `name`. One notice per
 * key is enough, however many items of a list have it. */
static weft_status note_renamed(loader *l, const weft_key *key, const char *where, const char *path,
                                const char *name)
{
    if (key->type != WEFT_KEY_MOVED && !has_word(key->earlier, name))
        return WEFT_OK;
    for (int i = 0; i < l->renamed_count; i++)
        if (l->renamed[i].key == key)
            return WEFT_OK;
    if (l->renamed_count == MAX_RENAMED)
        return WEFT_OK;
    renamed *r = &l->renamed[l->renamed_count];
    *r = (renamed){.key = key, .where = where, .now = key->moved};
    WEFT_TRY(join_path(l, path, name, &r->before));
    if (!key->moved)
        WEFT_TRY(join_path(l, path, key->name, &r->now));
    l->renamed_count++;
    return WEFT_OK;
}

static void print_renamed(const loader *l)
{
    for (int i = 0; i < l->renamed_count && weft_launcher_rank() <= 0; i++)
        weft_notice(WEFT_MSG_CONFIG_RENAMED_KEY,
                    WEFT_AT(.file = l->renamed[i].where, .key = l->renamed[i].before),
                    "this key is now %s", l->renamed[i].now);
}

static bool is_list_type(weft_key_type type)
{
    return type == WEFT_KEY_I64_LIST || type == WEFT_KEY_F64_LIST || type == WEFT_KEY_STRING_LIST;
}

/* Appends the legal values of a scalar of this key (or of one item of its list): "an integer from 1
 * to 9 (steps)". */
static void describe_expected(const weft_key *key, weft_buf *out)
{
    switch (key->type) {
    case WEFT_KEY_BOOL: weft_buf_printf(out, "true or false"); return;
    case WEFT_KEY_ENUM:
        weft_buf_printf(out, "one of ");
        for (int i = 0; key->choices[i]; i++)
            weft_buf_printf(out, "%s%s", i ? ", " : "", key->choices[i]);
        return;
    case WEFT_KEY_STRING:
    case WEFT_KEY_STRING_LIST: weft_buf_printf(out, "a text"); return;
    case WEFT_KEY_SECTION:
    case WEFT_KEY_SECTION_LIST:
    case WEFT_KEY_TREE:
    case WEFT_KEY_GONE:
    case WEFT_KEY_MOVED: weft_buf_printf(out, "a mapping of keys to values"); return;
    case WEFT_KEY_I64:
    case WEFT_KEY_I64_LIST: weft_buf_printf(out, "an integer"); break;
    case WEFT_KEY_F64:
    case WEFT_KEY_F64_LIST: weft_buf_printf(out, "a number"); break;
    }
    if (key->min != 0 || key->max != 0)
        weft_buf_printf(out, " from %.15g to %.15g", key->min, key->max);
    if (key->unit && key->unit[0])
        weft_buf_printf(out, " (%s)", key->unit);
    if (key->zero)
        weft_buf_printf(out, ", or %s", key->zero);
    if (key->flag_word)
        weft_buf_printf(out, ", or %s", key->flag_word);
}

/* `item`: the node stands where an item of the key's list is expected, not the list. */
static weft_status bad_value(const weft_yaml_node *node, const weft_key *key, const char *path,
                             bool item)
{
    weft_buf expected = {0};
    if (!item && (is_list_type(key->type) || key->type == WEFT_KEY_SECTION_LIST))
        weft_buf_printf(&expected, "a list, each item ");
    describe_expected(key, &expected);
    if ((key->type == WEFT_KEY_I64 || key->type == WEFT_KEY_I64_LIST) && key->unit &&
        !strcmp(key->unit, "bytes"))
        weft_buf_printf(&expected, ", such as 6GiB or 500MB");
    const char *text = expected.data ? expected.data : "another type";
    weft_status_code status;
    if (node->kind == WEFT_YAML_SCALAR)
        status = weft_error(WEFT_MSG_CONFIG_VALUE,
                            WEFT_AT(.file = node->where, .key = path, .value = node->text),
                            "'%.80s' is not %s", node->text, text);
    else
        status = weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.file = node->where, .key = path),
                            "expected %s; this is %s", text,
                            node->kind == WEFT_YAML_LIST  ? "a list"
                            : node->kind == WEFT_YAML_MAP ? "a mapping"
                                                          : "empty");
    weft_buf_free(&expected);
    return status;
}

static bool in_range(const weft_key *key, double value)
{
    if (key->min == 0 && key->max == 0)
        return true;
    return value >= key->min && value <= key->max;
}

static bool parse_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
    for (int i = 0; i < 3; i++) {
        if (!strcasecmp(text, yes[i]) || !strcasecmp(text, no[i])) {
            *out = !strcasecmp(text, yes[i]);
            return true;
        }
    }
    return false;
}

/* Finds the choice that a text of the config names, by its name or by a further name. */
static bool find_choice(const weft_key *key, const char *text, int *choice)
{
    const size_t length = strlen(text);
    const char *word = text;
    size_t word_length = length;
    for (const char *at = key->also_values; at && *at; at += strspn(at, " ")) {
        const size_t end = strcspn(at, " ");
        if (length && end > length && at[length] == '=' && !memcmp(at, text, length)) {
            word = at + length + 1;
            word_length = end - length - 1;
        }
        at += end;
    }
    for (int i = 0; key->choices[i]; i++) {
        if (strlen(key->choices[i]) == word_length && !memcmp(key->choices[i], word, word_length)) {
            *choice = i;
            return true;
        }
    }
    return false;
}

/* One scalar of `key` (an item, if the key is a list) into *slot. */
static weft_status read_scalar(loader *l, const weft_yaml_node *node, const weft_key *key,
                               const char *path, void *slot)
{
    bool good = false;
    if (node->kind != WEFT_YAML_SCALAR)
        return bad_value(node, key, path, true);
    switch (key->type) {
    case WEFT_KEY_BOOL: good = parse_bool(node->text, slot); break;
    case WEFT_KEY_I64:
    case WEFT_KEY_I64_LIST: {
        int64_t value = 0;
        const bool is_flag = key->flag_word && !strcmp(node->text, key->flag_word);
        if (key->flag_word)
            *(bool *)((char *)slot - key->offset + key->flag) = is_flag;
        good = is_flag || (key->zero && !strcmp(node->text, key->zero)) ||
               (weft_parse_i64(node->text, &value) && in_range(key, (double)value));
        *(int64_t *)slot = value;
        break;
    }
    case WEFT_KEY_F64:
    case WEFT_KEY_F64_LIST: {
        double value = 0;
        good = weft_parse_f64(node->text, &value) && in_range(key, value);
        *(double *)slot = value;
        break;
    }
    case WEFT_KEY_ENUM: good = find_choice(key, node->text, slot); break;
    case WEFT_KEY_STRING:
    case WEFT_KEY_STRING_LIST: {
        const char *copy = weft_arena_strdup(l->arena, node->text);
        WEFT_TRY(WEFT_ALLOCATED(copy, "%s: the config", node->where));
        *(const char **)slot = copy;
        good = true;
        break;
    }
    case WEFT_KEY_SECTION:
    case WEFT_KEY_SECTION_LIST:
    case WEFT_KEY_TREE:
    case WEFT_KEY_GONE:
    case WEFT_KEY_MOVED: break;
    }
    return good ? WEFT_OK : bad_value(node, key, path, true);
}

static int64_t item_bytes(const weft_key *key)
{
    switch (key->type) {
    case WEFT_KEY_I64_LIST: return sizeof(int64_t);
    case WEFT_KEY_F64_LIST: return sizeof(double);
    case WEFT_KEY_STRING_LIST: return sizeof(const char *);
    default: return (int64_t)key->section->bytes;
    }
}

static weft_status read_section(loader *l, weft_yaml_node *node, const weft_section *section,
                                const char *path, char *out);

/* "ring" as {kind: ring}. */
static weft_status open_single(loader *l, const weft_section *section, weft_yaml_node **node)
{
    weft_yaml_node *value = *node, *map;
    WEFT_TRY(weft_yaml_new(l->scratch, WEFT_YAML_MAP, value->where, &map));
    WEFT_TRY(weft_yaml_append(l->scratch, map, section->single, value->where, value));
    *node = map;
    return WEFT_OK;
}

/* A list of scalars or of sections. All list structs are {int64_t count; pointer item}. */
static weft_status read_list(loader *l, const weft_yaml_node *node, const weft_key *key,
                             const char *path, void *slot)
{
    int64_t size = item_bytes(key);
    if (node->kind == WEFT_YAML_SCALAR && key->type == WEFT_KEY_STRING_LIST) { /* a list of one */
        weft_string_list *one = slot;
        one->item = weft_arena_alloc(l->arena, size);
        WEFT_TRY(WEFT_ALLOCATED(one->item, "%s: the config", node->where));
        one->count = 1;
        return read_scalar(l, node, key, path, (void *)one->item);
    }
    if (node->kind != WEFT_YAML_LIST)
        return bad_value(node, key, path, false);
    char *items = weft_arena_alloc(l->arena, (node->count + 1) * size);
    WEFT_TRY(WEFT_ALLOCATED(items, "%s: the config", node->where));
    for (int64_t i = 0; i < node->count; i++) {
        const char *item_path = weft_arena_printf(l->scratch, "%s.%" PRId64, path, i);
        WEFT_TRY(WEFT_ALLOCATED(item_path, "%s: the config", node->where));
        if (key->type == WEFT_KEY_SECTION_LIST) {
            weft_yaml_node *item = node->child[i];
            if (item->kind == WEFT_YAML_SCALAR && key->section->single)
                WEFT_TRY(open_single(l, key->section, &item));
            if (item->kind != WEFT_YAML_MAP)
                return bad_value(item, key, item_path, true);
            WEFT_TRY(read_section(l, item, key->section, item_path, items + i * size));
        } else {
            WEFT_TRY(read_scalar(l, node->child[i], key, item_path, items + i * size));
        }
    }
    weft_section_list *list = slot;
    list->count = node->count;
    list->item = items;
    return WEFT_OK;
}

/* A node as JSON text. */
static void put_json(const weft_yaml_node *node, weft_buf *out)
{
    int64_t whole;
    double number;
    switch (node->kind) {
    case WEFT_YAML_NULL: weft_buf_printf(out, "null"); return;
    case WEFT_YAML_SCALAR:
        if (!node->quoted && weft_parse_i64(node->text, &whole))
            weft_buf_printf(out, "%" PRId64, whole);
        else if (!node->quoted && weft_parse_f64(node->text, &number))
            weft_buf_printf(out, "%.17g", number);
        else if (!node->quoted && (!strcmp(node->text, "true") || !strcmp(node->text, "false")))
            weft_buf_printf(out, "%s", node->text);
        else
            weft_config_put_string(out, node->text);
        return;
    case WEFT_YAML_LIST:
    case WEFT_YAML_MAP: break;
    }
    const bool map = node->kind == WEFT_YAML_MAP;
    weft_buf_printf(out, map ? "{" : "[");
    for (int64_t i = 0; i < node->count; i++) {
        weft_buf_printf(out, i ? ", " : "");
        if (map) {
            weft_config_put_string(out, node->key[i]);
            weft_buf_printf(out, ": ");
        }
        put_json(node->child[i], out);
    }
    weft_buf_printf(out, map ? "}" : "]");
}

static weft_status read_tree(loader *l, const weft_yaml_node *node, const weft_key *key,
                             const char *path, weft_config_tree *tree)
{
    if (node->kind != WEFT_YAML_MAP)
        return bad_value(node, key, path, false);
    weft_buf json = {0};
    put_json(node, &json);
    const bool whole = weft_buf_check(&json) == WEFT_OK;
    const int64_t bytes = (node->count + 1) * (int64_t)sizeof(const char *);
    const char **keys = weft_arena_alloc(l->arena, bytes);
    const char **wheres = weft_arena_alloc(l->arena, bytes);
    *tree = (weft_config_tree){.json = whole ? weft_arena_strdup(l->arena, json.data) : NULL,
                               .where = weft_arena_strdup(l->arena, node->where),
                               .count = node->count,
                               .key = keys,
                               .key_where = wheres};
    weft_buf_free(&json);
    for (int64_t i = 0; i < node->count && keys && wheres; i++) {
        keys[i] = weft_arena_strdup(l->arena, node->key[i]);
        wheres[i] = weft_arena_strdup(l->arena, node->key_where[i]);
        if (!keys[i] || !wheres[i])
            tree->json = NULL;
    }
    if (!tree->json || !tree->where || !keys || !wheres)
        return weft_no_memory("%s: the config", node->where);
    return WEFT_OK;
}

/* The default of a key as a node. */
static weft_status fallback_node(loader *l, const weft_key *key, weft_yaml_node **out)
{
    if (is_list_type(key->type))
        return weft_yaml_parse(l->scratch, key->fallback, (int64_t)strlen(key->fallback),
                               "built-in default", true, out);
    WEFT_TRY(weft_yaml_new(l->scratch, WEFT_YAML_SCALAR, "built-in default", out));
    (*out)->text = key->fallback;
    return WEFT_OK;
}

/* Whether the section sets the list that may replace the single value of `key`. */
static bool list_is_set(const weft_yaml_node *section_node, const weft_key *key)
{
    const weft_yaml_node *list = section_node ? weft_yaml_find(section_node, key->list) : NULL;
    return list && list->kind == WEFT_YAML_LIST && list->count > 0;
}

static weft_status read_key(loader *l, const weft_yaml_node *section_node, const weft_key *key,
                            const char *path, void *slot)
{
    weft_yaml_node *node = section_node ? weft_yaml_find(section_node, key->name) : NULL;
    if (node && node->kind == WEFT_YAML_NULL)
        node = NULL;
    if (key->type == WEFT_KEY_SECTION) {
        if (node && node->kind == WEFT_YAML_SCALAR && key->section->single)
            WEFT_TRY(open_single(l, key->section, &node));
        if (node && node->kind != WEFT_YAML_MAP)
            return bad_value(node, key, path, false);
        return read_section(l, node, key->section, path, slot);
    }
    if (!is_listed(key))
        return WEFT_OK;
    if (!node && (key->type == WEFT_KEY_SECTION_LIST || key->type == WEFT_KEY_TREE))
        return WEFT_OK; /* zeroed: none */
    if (key->type == WEFT_KEY_TREE)
        return read_tree(l, node, key, path, slot);
    if (!node && !key->fallback && key->list && list_is_set(section_node, key)) {
        *(const char **)slot = "";
        return WEFT_OK;
    }
    if (!node && !key->fallback)
        return weft_error(
            WEFT_MSG_CONFIG_MISSING_KEY,
            WEFT_AT(.file = section_node ? section_node->where : l->name, .key = path),
            "this required key is missing: %s", key->help);
    if (!node)
        WEFT_TRY(fallback_node(l, key, &node));
    if (is_list_type(key->type) || key->type == WEFT_KEY_SECTION_LIST)
        return read_list(l, node, key, path, slot);
    return read_scalar(l, node, key, path, slot);
}

/* Returns the place where a map sets this key; NULL: the map does not set the key. */
static const char *where_set(const weft_yaml_node *map, const char *key)
{
    for (int64_t i = 0; i < map->count; i++)
        if (!strcmp(map->key[i], key))
            return map->key_where[i];
    return NULL;
}

static weft_status two_names(const char *where, const char *before, const char *now,
                             const char *elsewhere)
{
    return weft_error(WEFT_MSG_CONFIG_SYNTAX, WEFT_AT(.file = where, .key = before),
                      "'%s' and '%s' are two names of one key, which %s sets, too; keep '%s'",
                      before, now, elsewhere, now);
}

/* Replaces other and earlier names of keys by the names of the table. A key with a list as value
 * gets the name of its list. */
static weft_status rename_keys(loader *l, const weft_section *section, weft_yaml_node *map,
                               const char *path)
{
    for (int64_t i = 0; i < map->count; i++) {
        const weft_key *key = find_key(section, map->key[i]);
        if (!key)
            continue;
        const bool list = key->list && map->child[i]->kind == WEFT_YAML_LIST;
        const char *name = list ? key->list : key->name;
        if (!strcmp(name, map->key[i]))
            continue;
        const char *elsewhere = where_set(map, name);
        if (elsewhere)
            return two_names(map->key_where[i], map->key[i], name, elsewhere);
        WEFT_TRY(note_renamed(l, key, map->key_where[i], path, map->key[i]));
        map->key[i] = name;
    }
    return WEFT_OK;
}

/* `node` NULL: all defaults. */
static weft_status read_section(loader *l, weft_yaml_node *node, const weft_section *section,
                                const char *path, char *out)
{
    if (node)
        WEFT_TRY(rename_keys(l, section, node, path));
    for (int64_t i = 0; node && i < node->count; i++) {
        const weft_key *key = find_key(section, node->key[i]);
        if (!key)
            return unknown_key(l->root, section, node->key_where[i], path, node->key[i]);
        if (key->type == WEFT_KEY_GONE)
            return gone_key(node->key_where[i], path, key);
    }
    for (int i = 0; i < section->key_count; i++) {
        const weft_key *key = &section->keys[i];
        const char *key_path;
        WEFT_TRY(join_path(l, path, key->name, &key_path));
        WEFT_TRY(read_key(l, node, key, key_path, out + key->offset));
    }
    return WEFT_OK;
}

/* ---- overrides ----------------------------------------------------------------------------- */

/* Sets parent[key] (a map) to `child`, which replaces an earlier value. */
static weft_status set_member(loader *l, weft_yaml_node *map, const char *key,
                              weft_yaml_node *child)
{
    for (int64_t i = 0; i < map->count; i++) {
        if (!strcmp(map->key[i], key)) {
            map->child[i] = child;
            map->key_where[i] = child->where;
            return WEFT_OK;
        }
    }
    return weft_yaml_append(l->scratch, map, key, child->where, child);
}

/* The list or map under `key` of `map`, made (from the default of a list of scalars) if absent. */
static weft_status open_member(loader *l, weft_yaml_node *map, const weft_key *key,
                               const char *where, weft_yaml_node **out)
{
    bool section = key->type == WEFT_KEY_SECTION;
    weft_yaml_node *node = weft_yaml_find(map, key->name);
    if (node && node->kind == (section ? WEFT_YAML_MAP : WEFT_YAML_LIST)) {
        *out = node;
        return WEFT_OK;
    }
    if (node && node->kind != WEFT_YAML_NULL)
        return bad_value(node, key, key->name, false);
    if (is_list_type(key->type) && key->fallback)
        WEFT_TRY(fallback_node(l, key, &node));
    else
        WEFT_TRY(weft_yaml_new(l->scratch, section ? WEFT_YAML_MAP : WEFT_YAML_LIST, where, &node));
    WEFT_TRY(set_member(l, map, key->name, node));
    *out = node;
    return WEFT_OK;
}

/* Index `word` of a list: an item, or one past the end. */
static weft_status list_index(const weft_yaml_node *list, const char *where, const char *path,
                              const char *word, int64_t *index)
{
    char *end;
    int64_t value = strtoll(word, &end, 10);
    if (!isdigit((unsigned char)word[0]) || *end)
        return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = where),
                          "'%s' is a list; '%s' must be an index from 0", path, word);
    if (value > list->count)
        return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = where),
                          "index %" PRId64 " is past the end of '%s', which has %" PRId64
                          " elements",
                          value, path, list->count);
    *index = value;
    return WEFT_OK;
}

static weft_status set_item(loader *l, weft_yaml_node *list, int64_t index, weft_yaml_node *child)
{
    if (index == list->count)
        return weft_yaml_append(l->scratch, list, NULL, NULL, child);
    list->child[index] = child;
    return WEFT_OK;
}

/* The value of an override. A string key takes the text unchanged: "--set prompt=a: b" is not a
 * mapping. */
static weft_status override_value(loader *l, const weft_key *key, bool item, const char *where,
                                  const char *text, weft_yaml_node **value)
{
    if (key->type != WEFT_KEY_STRING && !(item && key->type == WEFT_KEY_STRING_LIST))
        return weft_yaml_parse(l->scratch, text, (int64_t)strlen(text), where, true, value);
    WEFT_TRY(weft_yaml_new(l->scratch, WEFT_YAML_SCALAR, where, value));
    (*value)->text = text;
    return WEFT_OK;
}

/* Sets the rest of a path, "word.more", below map[name], which no table describes. Creates missing
 * maps and can set items of lists. */
static weft_status set_in_tree(loader *l, weft_yaml_node *map, const char *name, char *word,
                               char **save, const char *where, const char *text)
{
    weft_yaml_node *node = weft_yaml_find(map, name), *value;
    if (!node || node->kind == WEFT_YAML_NULL) {
        WEFT_TRY(weft_yaml_new(l->scratch, WEFT_YAML_MAP, where, &node));
        WEFT_TRY(set_member(l, map, name, node));
    }
    for (;;) {
        char *next = strtok_r(NULL, ".", save);
        int64_t index = 0;
        weft_yaml_node *below = NULL;
        if (node->kind == WEFT_YAML_LIST)
            WEFT_TRY(list_index(node, where, name, word, &index));
        else if (node->kind != WEFT_YAML_MAP)
            return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = where),
                              "'%s' is a single value and has no '%.80s'", name, word);
        if (!next) {
            WEFT_TRY(weft_yaml_parse(l->scratch, text, (int64_t)strlen(text), where, true, &value));
            return node->kind == WEFT_YAML_LIST ? set_item(l, node, index, value)
                                                : set_member(l, node, word, value);
        }
        if (node->kind == WEFT_YAML_MAP)
            below = weft_yaml_find(node, word);
        else if (index < node->count)
            below = node->child[index];
        if (!below) {
            WEFT_TRY(weft_yaml_new(l->scratch, WEFT_YAML_MAP, where, &below));
            WEFT_TRY(node->kind == WEFT_YAML_LIST ? set_item(l, node, index, below)
                                                  : set_member(l, node, word, below));
        }
        name = word;
        word = next;
        node = below;
    }
}

/* Removes the list of a key that gets a single value, or the single value of one that gets a
 * list. */
static weft_status clear_other_form(loader *l, const weft_section *section, weft_yaml_node *map,
                                    const weft_key *key)
{
    for (int i = 0; i < section->key_count; i++) {
        const weft_key *one = &section->keys[i];
        const char *other = !one->list                      ? NULL
                            : one == key                    ? one->list
                            : !strcmp(one->list, key->name) ? one->name
                                                            : NULL;
        weft_yaml_node *none;
        if (!other || !where_set(map, other))
            continue;
        WEFT_TRY(weft_yaml_new(l->scratch, WEFT_YAML_NULL, where_set(map, other), &none));
        WEFT_TRY(set_member(l, map, other, none));
    }
    return WEFT_OK;
}

/* Walks "a.b.0.c" down the tree and the tables together, and puts `text` at its end. */
static weft_status set_path(loader *l, weft_yaml_node *node, char *path, const char *where,
                            const char *text)
{
    weft_yaml_node *value;
    const weft_section *section = l->root;
    char done[320] = "";
    for (char *save, *word = strtok_r(path, ".", &save);;) {
        WEFT_TRY(rename_keys(l, section, node, done));
        const weft_key *key = find_key(section, word);
        if (!key)
            return unknown_key(l->root, section, where, done, word);
        if (key->type == WEFT_KEY_GONE)
            return gone_key(where, done, key);
        WEFT_TRY(note_renamed(l, key, where, done, word));
        snprintf(done + strlen(done), sizeof done - strlen(done), "%s%s", done[0] ? "." : "", word);
        word = strtok_r(NULL, ".", &save);
        if (key->list && (word || text[0] == '['))
            key = find_key(section, key->list);
        if (!word) {
            WEFT_TRY(override_value(l, key, false, where, text, &value));
            WEFT_TRY(clear_other_form(l, section, node, key));
            return set_member(l, node, key->name, value);
        }
        if (key->type == WEFT_KEY_TREE)
            return set_in_tree(l, node, key->name, word, &save, where, text);
        bool list = is_list_type(key->type) || key->type == WEFT_KEY_SECTION_LIST ||
                    key->type == WEFT_KEY_MOVED;
        if (!list && key->type != WEFT_KEY_SECTION)
            return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = where),
                              "'%s' is a single value and has no '%.80s'", done, word);
        WEFT_TRY(open_member(l, node, key, where, &node));
        section = key->section;
        if (!list)
            continue;
        int64_t index = 0;
        WEFT_TRY(list_index(node, where, done, word, &index));
        snprintf(done + strlen(done), sizeof done - strlen(done), ".%s", word);
        word = strtok_r(NULL, ".", &save);
        if (!word) {
            WEFT_TRY(override_value(l, key, true, where, text, &value));
            return set_item(l, node, index, value);
        }
        if (!section)
            return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = where),
                              "'%s' is a single value and has no '%.80s'", done, word);
        if (index == node->count) {
            weft_yaml_node *item;
            WEFT_TRY(weft_yaml_new(l->scratch, WEFT_YAML_MAP, where, &item));
            WEFT_TRY(set_item(l, node, index, item));
        }
        if (node->child[index]->kind == WEFT_YAML_SCALAR && section->single)
            WEFT_TRY(open_single(l, section, &node->child[index]));
        node = node->child[index];
        if (node->kind != WEFT_YAML_MAP)
            return bad_value(node, key, done, true);
    }
}

static weft_status apply_override(loader *l, weft_yaml_node *root, const char *text)
{
    const char *equals = strchr(text, '=');
    const char *option = strncmp(l->name, "--", 2) ? "--set" : l->name;
    const char *where = weft_arena_printf(l->scratch, "%s %.120s", option, text);
    char *path = weft_arena_strdup(l->scratch, text);
    WEFT_TRY(WEFT_ALLOCATED(where && path, "%s %.120s", option, text));
    if (!equals || equals == text || text[0] == '.' || equals[-1] == '.' || strlen(text) > 4000)
        return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = where), "expected KEY=VALUE");
    if (!weft_utf8_valid(text))
        return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = where), "the text is not UTF-8");
    path[equals - text] = 0;
    if (strstr(path, ".."))
        return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = where),
                          "there is an empty name between two dots");
    return set_path(l, root, path, where, equals + 1);
}

/* ---- keys of other sections ---------------------------------------------------------------- */

/* A list, or a single value as a list of one, at the end of `list`. */
static weft_status append_items(loader *l, weft_yaml_node *list, weft_yaml_node *from)
{
    if (from->kind == WEFT_YAML_SCALAR)
        return weft_yaml_append(l->scratch, list, NULL, NULL, from);
    for (int64_t i = 0; i < from->count; i++)
        WEFT_TRY(weft_yaml_append(l->scratch, list, NULL, NULL, from->child[i]));
    return WEFT_OK;
}

/* Whether the list has one item only, and that is one of `choices`. */
static bool is_choice_alone(const weft_yaml_node *node, const char *const *choices)
{
    if (node->kind == WEFT_YAML_LIST)
        node = node->count == 1 ? node->child[0] : NULL;
    for (int i = 0; node && node->kind == WEFT_YAML_SCALAR && choices[i]; i++)
        if (!strcmp(node->text, choices[i]))
            return true;
    return false;
}

/* The list that `map` has under the MOVED key, to where it belongs now. An empty one, as dumps have
 * it, is the default. */
static weft_status move_key(loader *l, weft_yaml_node *map, const weft_key *key,
                            weft_yaml_node *node, const char *where)
{
    const size_t length = strcspn(key->moved, ".");
    const char *name = weft_arena_printf(l->scratch, "%.*s", (int)length, key->moved);
    WEFT_TRY(WEFT_ALLOCATED(name, "%s: the config", where));
    const weft_key *section = find_key(l->root, name),
                   *target = find_key(section->section, key->moved + length + 1);
    weft_yaml_node *inside, *list;
    if (node->kind == WEFT_YAML_NULL || (node->kind == WEFT_YAML_LIST && !node->count))
        return WEFT_OK;
    if (node->kind == WEFT_YAML_MAP)
        return bad_value(node, target, key->name, false);
    WEFT_TRY(open_member(l, map, section, where, &inside));
    WEFT_TRY(rename_keys(l, section->section, inside, name));
    weft_yaml_node *there = weft_yaml_find(inside, target->name);
    if (!there || there->kind == WEFT_YAML_NULL)
        WEFT_TRY(fallback_node(l, target, &there));
    else if (!is_choice_alone(there, key->choices))
        return two_names(where, key->name, key->moved, where_set(inside, target->name));
    WEFT_TRY(weft_yaml_new(l->scratch, WEFT_YAML_LIST, where, &list));
    WEFT_TRY(append_items(l, list, there));
    WEFT_TRY(append_items(l, list, node));
    return set_member(l, inside, target->name, list);
}

static weft_status move_keys(loader *l, weft_yaml_node *map)
{
    for (int64_t i = 0; i < map->count; i++) {
        const weft_key *key = find_key(l->root, map->key[i]);
        if (!key || key->type != WEFT_KEY_MOVED)
            continue;
        WEFT_TRY(note_renamed(l, key, map->key_where[i], "", key->name));
        WEFT_TRY(move_key(l, map, key, map->child[i], map->key_where[i]));
    }
    return WEFT_OK;
}

/* ---- entry points -------------------------------------------------------------------------- */

static weft_status parse(weft_arena *arena, const char *text, int64_t bytes, const char *name,
                         const char *const *overrides, int override_count, const weft_section *root,
                         bool notices, void *out)
{
    weft_status_code status = WEFT_OK;
    loader l = {.arena = arena, .scratch = weft_arena_create(), .name = name, .root = root};
    void *made = weft_alloc((int64_t)root->bytes);
    weft_yaml_node *tree;
    WEFT_GO(WEFT_ALLOCATED(l.scratch && made, "%s: the config", name));
    WEFT_GO(weft_yaml_parse(l.scratch, text, bytes, name, false, &tree));
    if (tree->kind == WEFT_YAML_NULL)
        tree->kind = WEFT_YAML_MAP;
    if (tree->kind != WEFT_YAML_MAP)
        WEFT_GO(weft_error(WEFT_MSG_CONFIG_SYNTAX, WEFT_AT(.file = tree->where),
                           "this is not a config; write lines like 'key: value'"));
    for (int i = 0; i < override_count; i++)
        WEFT_GO(apply_override(&l, tree, overrides[i]));
    WEFT_GO(move_keys(&l, tree));
    WEFT_GO(read_section(&l, tree, root, "", made));
    if (notices)
        print_renamed(&l);
    memcpy(out, made, root->bytes);
out:
    weft_free(made);
    weft_arena_free(l.scratch);
    return status;
}

weft_status weft_config_parse(weft_arena *arena, const char *text, int64_t bytes, const char *name,
                              const char *const *overrides, int override_count,
                              const weft_section *root, void *out)
{
    return parse(arena, text, bytes, name, overrides, override_count, root, true, out);
}

weft_status weft_config_parse_dump(weft_arena *arena, const char *text, int64_t bytes,
                                   const char *name, const weft_section *root, void *out)
{
    return parse(arena, text, bytes, name, NULL, 0, root, false, out);
}

weft_status weft_config_load(weft_arena *arena, const char *path, const char *const *overrides,
                             int override_count, const weft_section *root, void *out)
{
    char *text = NULL;
    int64_t bytes = 0;
    if (path)
        WEFT_TRY(weft_file_read(path, MAX_CONFIG_BYTES, &text, &bytes));
    weft_status_code status =
        weft_config_parse(arena, text ? text : "", bytes, path ? path : "config", overrides,
                          override_count, root, out);
    weft_free(text);
    return status;
}

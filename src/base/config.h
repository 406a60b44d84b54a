/* Config files: one table per section makes the parser, --set, --help, the docs and the dump.
 *
 *   typedef struct train_config { int64_t steps; double lr; weft_i64_list shape; } train_config;
 *   static const weft_key train_keys[] = {
 *       {"steps", WEFT_KEY_I64, offsetof(train_config, steps), "1000", "", "optimizer steps",
 *        .min = 1, .max = 1e9},
 *       {"lr", WEFT_KEY_F64, offsetof(train_config, lr), "1e-4", "", "learning rate",
 *        .min = 0, .max = 1}, ...
 *   };
 *   const weft_section train_section = {"train", "the training loop", sizeof(train_config),
 *                                       train_keys, WEFT_COUNT(train_keys)};
 *
 * Unknown keys are errors that give file, line and the nearest known name. */
#ifndef WEFT_BASE_CONFIG_H
#define WEFT_BASE_CONFIG_H

#include "base/memory.h"

#define WEFT_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

typedef enum weft_key_type {
    WEFT_KEY_BOOL,         /* bool */
    WEFT_KEY_I64,          /* int64_t; 1e9, 4k, 2M, 1G, 80GiB are understood */
    WEFT_KEY_F64,          /* double */
    WEFT_KEY_STRING,       /* const char *, arena */
    WEFT_KEY_ENUM,         /* int: index into `choices` */
    WEFT_KEY_I64_LIST,     /* weft_i64_list */
    WEFT_KEY_F64_LIST,     /* weft_f64_list */
    WEFT_KEY_STRING_LIST,  /* weft_string_list */
    WEFT_KEY_SECTION,      /* a nested struct, described by `section` */
    WEFT_KEY_SECTION_LIST, /* weft_section_list of structs described by `section` */
    WEFT_KEY_TREE,         /* weft_config_tree: a mapping that another table reads */
    WEFT_KEY_GONE,         /* none: a removed key; `help` names its replacement */
    WEFT_KEY_MOVED,        /* none: an old list of the top level; see `moved` */
} weft_key_type;

typedef struct weft_i64_list {
    int64_t count;
    int64_t *item;
} weft_i64_list;
typedef struct weft_f64_list {
    int64_t count;
    double *item;
} weft_f64_list;
typedef struct weft_string_list {
    int64_t count;
    const char **item;
} weft_string_list;
/* `item` is an array of the section's struct. */
typedef struct weft_section_list {
    int64_t count;
    void *item;
} weft_section_list;

/* A mapping as JSON, and where its keys were written. Plain scalars that look like numbers, true or
 * false are such; all else is text. In the arena. */
typedef struct weft_config_tree {
    const char *json;  /* NULL: the key was not given */
    const char *where; /* "run.yaml:12" */
    int64_t count;
    const char *const *key, *const *key_where; /* [count] */
} weft_config_tree;

typedef struct weft_section weft_section;
typedef struct weft_key {
    const char *name;
    weft_key_type type;
    size_t offset; /* offset in the section's struct */
    /* default: the text of a number, string or choice as it is, a list as YAML ("[1, 2]"); NULL:
     * the key must be given. Unused for sections: an absent one has its defaults, an absent list
     * none. */
    const char *fallback;
    const char *unit; /* "s", "bytes", "" */
    const char *help;
    double min, max;            /* numbers (and items of lists); both 0: no limit */
    const char *const *choices; /* ENUM: NULL-terminated */
    const weft_section *section;
    const char *zero; /* I64: a word for 0; NULL: none */
    /* I64: a word that sets the number to 0 and the bool at `flag` of the section's struct to true;
     * NULL: none */
    const char *flag_word;
    size_t flag;
    /* Further names, separated by spaces; NULL: none. Each is accepted. Names of other projects
     * print nothing; for an earlier name of this key a notice prints the new one. */
    const char *also, *earlier;
    /* ENUM: other spellings of choices, "OLD=NEW" separated by spaces; NULL: none */
    const char *also_values;
    /* STRING: the SECTION_LIST key of the same section that a list as value sets. Where that key is
     * set, this key is not required. NULL: a list is an error */
    const char *list;
    /* MOVED: "SECTION.KEY" of the list that the items now belong to. They are appended to its
     * default, or to one of `choices` where that is its only item. */
    const char *moved;
} weft_key;
struct weft_section {
    const char *name;
    const char *help;
    size_t bytes; /* size of the struct */
    const weft_key *keys;
    int key_count;
    /* The key that a single value sets: "context: ring" means "context: {kind: ring}", also for an
     * item of a list. NULL: the value must be a mapping. */
    const char *single;
};

/* Reads `path` (NULL: defaults only), then applies `--set a.b=value` overrides in order
 * ("buckets.0.frames=9" reaches into lists, an index one past the end appends), checks everything
 * and fills *out. Strings and lists live in `arena`. A null value ("key:", "key: null") selects the
 * default. Errors are WEFT_E_CONFIG and begin with "file:line: " or "--set text: ". */
weft_status weft_config_load(weft_arena *arena, const char *path, const char *const *overrides,
                             int override_count, const weft_section *root, void *out);
/* Reads a config from text in memory. Messages print `name` in place of the path, and in place of
 * --set if it is an option ("--parallel") whose values the overrides are. */
weft_status weft_config_parse(weft_arena *arena, const char *text, int64_t bytes, const char *name,
                              const char *const *overrides, int override_count,
                              const weft_section *root, void *out);
/* Reads a dump that weft wrote: earlier names of keys print nothing. */
weft_status weft_config_parse_dump(weft_arena *arena, const char *text, int64_t bytes,
                                   const char *name, const weft_section *root, void *out);

/* Parses "4096", "4k", "1.5M", "1e9", "80GiB": k M G T are powers of 1000, Ki Mi Gi Ti of 1024, and
 * a following "B" changes nothing. A fraction of a unit ("77.3MiB") is rounded down to a whole
 * number. False if `text` has another form, has a fraction without a unit, or exceeds int64_t. */
bool weft_parse_i64(const char *text, int64_t *out);
bool weft_parse_f64(const char *text, double *out); /* the whole text is one finite number */

/* The nearest of `names` to `word` by edit distance, or NULL when none is near. */
const char *weft_nearest_name(const char *word, const char *const *names, int count);

#endif

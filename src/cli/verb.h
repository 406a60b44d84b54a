/* A verb of the command line. One table per verb makes its parser, `--help`, its page in docs/, the
 * man page and the shell completion. cli/verbs.def lists the verbs; each has cli/<name>.c with
 *   const weft_verb weft_verb_<name> = {...};                                                    */
#ifndef WEFT_CLI_VERB_H
#define WEFT_CLI_VERB_H

#include "base/config.h"

typedef struct weft_option {
    const char *name;       /* "--in" */
    const char *value_name; /* "DIR"; NULL: a flag */
    const char *fallback;   /* default; NULL: none */
    const char *help;
    bool required;
    bool repeated; /* may be given several times, as --set */
} weft_option;

typedef struct weft_args weft_args;

typedef struct weft_verb {
    const char *name;
    const char *summary;    /* one line */
    const char *usage;      /* after "weft <name> ", e.g. "CONFIG [options]" */
    const char *details;    /* paragraphs: what it reads, does, writes; units; exit codes */
    const char *examples;   /* lines that run as they are */
    const weft_option *options;
    int option_count;
    const weft_section *config; /* the config's root section, or NULL */
    int min_positional, max_positional; /* max -1: any number */
    weft_status (*run)(const weft_args *args);
} weft_verb;

/* The value of an option (its default if not given, else NULL); asserts that the table has it. */
const char *weft_args_string(const weft_args *args, const char *option);
bool weft_args_flag(const weft_args *args, const char *option);
/* Numbers are checked against [min, max]; needs a default or `required`. */
weft_status weft_args_i64(const weft_args *args, const char *option, int64_t min, int64_t max, int64_t *out);
weft_status weft_args_f64(const weft_args *args, const char *option, double min, double max, double *out);
/* All values of a repeated option. */
const char *const *weft_args_list(const weft_args *args, const char *option, int *count);
const char *const *weft_args_positional(const weft_args *args, int *count);

/* Every verb with a config takes "--set KEY=VALUE" (repeated); this loads the verb's config from
 * `path` with those overrides. */
weft_status weft_args_config(const weft_args *args, weft_arena *arena, const char *path, void *out);

#endif

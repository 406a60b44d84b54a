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
    const char *summary;  /* one line */
    const char *usage;    /* after "weft <name> ", e.g. "CONFIG [options]" */
    const char *details;  /* paragraphs: what it reads, does, writes; units; exit codes */
    const char *examples; /* lines that run as they are */
    const weft_option *options;
    int option_count;
    const weft_section *config;                 /* the config's root section, or NULL */
    void (*more)(bool markdown, weft_buf *out); /* tables of what may be named; or NULL */
    int min_positional, max_positional;         /* max -1: any number */
    bool hidden;                                /* not in `weft --help` */
    bool stops_cleanly; /* asks weft_interrupted(); else the first Ctrl-C kills */
    weft_status (*run)(const weft_args *args);
} weft_verb;

/* Every verb of verbs.def, in that order. */
extern const weft_verb *const weft_verbs[];
extern const int weft_verb_count;
const weft_verb *weft_verb_find(const char *name); /* NULL: none */

/* Reads argv (what follows the verb's name); WEFT_E_ARG says what is wrong. Every verb has --help,
 * and one with a config has --set; both may be left out of its table. */
weft_status weft_args_parse(const weft_verb *verb, int argc, char *const *argv, weft_args **args);
void weft_args_free(weft_args *args);
bool weft_args_wants_help(const weft_args *args);
/* True after a getter below refused a value: the program then exits with 2 as for a parse error. */
bool weft_args_refused(const weft_args *args);

/* What the tables say, as text for a terminal, a Markdown page, the man page, and completion. */
void weft_help_overview(weft_buf *out);
void weft_help_verb(const weft_verb *verb, weft_buf *out);
void weft_help_markdown(const weft_verb *verb, weft_buf *out);
/* The model classes and the fields of their configs. */
void weft_help_families(bool markdown, weft_buf *out);
void weft_help_generate(bool markdown, weft_buf *out);
void weft_help_man(weft_buf *out);
void weft_help_bash(weft_buf *out);

/* The value of an option (its default if not given, else NULL); asserts that the table has it. */
const char *weft_args_string(const weft_args *args, const char *option);
bool weft_args_flag(const weft_args *args, const char *option);
/* Numbers are checked against [min, max]; needs a default or `required`. */
weft_status weft_args_i64(const weft_args *args, const char *option, int64_t min, int64_t max,
                          int64_t *out);
weft_status weft_args_f64(const weft_args *args, const char *option, double min, double max,
                          double *out);
/* All values of a repeated option. */
const char *const *weft_args_list(const weft_args *args, const char *option, int *count);
const char *const *weft_args_positional(const weft_args *args, int *count);

/* Every verb with a config takes "--set KEY=VALUE" (repeated); this loads the verb's config from
 * `path` with those overrides. */
weft_status weft_args_config(const weft_args *args, weft_arena *arena, const char *path, void *out);

#endif

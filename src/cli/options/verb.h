/* A verb of the command line. One table per verb defines its parser, `--help`, its page in docs/,
 * the man page and the shell completion. verbs.def lists the verbs; each has cli/<name>.c with
 *   const weft_verb weft_verb_<name> = {...}; */
#ifndef WEFT_CLI_OPTIONS_VERB_H
#define WEFT_CLI_OPTIONS_VERB_H

#include "base/config.h"

/* Results of an option that may go to a bucket. The value has a path of this machine, whose files
 * are sent when the verb has ended. */
typedef enum weft_result {
    WEFT_RESULT_LOCAL,  /* a bucket is an error */
    WEFT_RESULT_FILE,   /* one file, which replaces an earlier one; sent after success */
    WEFT_RESULT_NEW,    /* a folder without earlier objects; sent after success */
    WEFT_RESULT_FOLDER, /* a folder with its earlier objects; also sent after an error */
    WEFT_RESULT_VIDEO,  /* a video with the files of its name, or a folder; as FOLDER */
} weft_result;

typedef struct weft_option {
    const char *name;       /* "--in" */
    const char *value_name; /* "DIR"; NULL: a flag */
    const char *fallback;   /* default; NULL: none */
    const char *help;
    bool required;
    bool remote; /* the location may be a bucket or a server: s3://BUCKET/PREFIX */
    /* A remote location is copied first; the value has the path of the copy. In "[NAME=]DIR",
     * "NAME=FILE" and "FILE[:WEIGHT]", name and weight stay; "[NAME=]DIR" gets the location's. */
    bool copied;
    bool copied_configs; /* copied, without files of weights */
    weft_result result;
    bool repeated;           /* may be given several times, e.g. --set */
    const char *const *also; /* earlier names, still accepted, NULL-terminated; NULL: none */
    /* name of one of the verb's `groups`; any other name, and NULL: the group "options" */
    const char *group;
    bool common;         /* is on the first screen although it belongs to one of `groups` */
    const char *choices; /* values for completion, separated by spaces; NULL: any */
} weft_option;

/* Options that `weft VERB --help NAME` prints together. */
typedef struct weft_option_group {
    const char *name;
    const char *help; /* one line */
} weft_option_group;

/* Accepted names with their meaning, printed by `weft VERB --help NAME`. */
typedef struct weft_help_table {
    const char *name;
    const char *help; /* one line */
    void (*put)(bool markdown, weft_buf *out);
    /* Writes one entry, for `--help ENTRY`. Returns false if no entry has the name. NULL: entries
     * are not separate */
    bool (*put_entry)(const char *name, weft_buf *out);
} weft_help_table;

#define WEFT_ALSO(...)                                                                             \
    .also = (const char *const[])                                                                  \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

typedef struct weft_args weft_args;

typedef struct weft_verb {
    const char *name;
    const char *summary;  /* one line */
    const char *usage;    /* after "weft <name> ", e.g. "CONFIG [options]"; one form per line */
    const char *details;  /* input, action, output; `--help` shows the first paragraph */
    const char *files;    /* files that the verb writes, one line; NULL: none */
    const char *see;      /* pages with more; NULL: none */
    const char *examples; /* complete command lines */
    /* groups in the order of the help; the last has no name. NULL: none */
    const weft_option_group *groups;
    const weft_option *options;
    int option_count;
    const weft_section *config;         /* the config's root section; NULL: none */
    const weft_help_table *more;        /* tables; the last has no name. NULL: none */
    int min_positional, max_positional; /* maximum -1: any number */
    bool copies_positional;             /* as weft_option.copied */
    bool remote_positional;             /* as weft_option.remote */
    bool texts_positional;              /* arguments after the first are texts, not places */
    bool hidden;                        /* not in `weft --help` */
    bool stops_cleanly;                 /* polls weft_interrupted(); else the first Ctrl-C kills */
    weft_status (*run)(const weft_args *args);
} weft_verb;

#endif

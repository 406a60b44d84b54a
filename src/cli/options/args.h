#ifndef WEFT_CLI_OPTIONS_ARGS_H
#define WEFT_CLI_OPTIONS_ARGS_H

#include "base/memory.h"
#include "cli/options/verb.h"

/* Every verb of verbs.def, in that order. */
extern const weft_verb *const weft_verbs[];
extern const int weft_verb_count;
const weft_verb *weft_verb_find(const char *name); /* NULL: none */
/* Parses argv after the verb's name. WEFT_E_ARG: the message names the invalid argument. Every verb
 * has --help, and a verb with a config has --set; the table may omit both. An earlier name of an
 * option is accepted, and one message of rank 0 lists the current names. */
weft_status weft_args_parse(const weft_verb *verb, int argc, char *const *argv, weft_args **args);
void weft_args_free(weft_args *args);
/* Returns NULL without --help, else its section, which is "" if none was given. */
const char *weft_args_help(const weft_args *args);
/* The option --set of every verb with a config. */
extern const weft_option weft_set_option;
/* Returns true after a getter below rejected a value: the program then exits with 2 as for a parse
 * error. */
bool weft_args_refused(const weft_args *args);
/* Returns the value of an option, its default if not given, else NULL. Asserts that the table has
 * the option. */
const char *weft_args_string(const weft_args *args, const char *option);
/* Whether the value is the path of a copy of a remote location. */
bool weft_args_is_copy(const weft_args *args, const char *option);
/* The value as it was given: the location of a bucket in place of a path. */
const char *weft_args_given(const weft_args *args, const char *option);
/* The folder in which all ranks write the result of an option, which goes to the bucket
 * weft_args_given. NULL: another kind of result. */
const char *weft_args_shared_folder(const weft_args *args, const char *option);
/* Sends results to their buckets after the verb has run. Returns `status`, or the error of the
 * send. After an error of the verb, an error of the send is a warning. */
weft_status_code weft_args_send(weft_args *args, weft_status_code status);
bool weft_args_flag(const weft_args *args, const char *option);
/* Reads a number and checks the range [min, max]; needs a default or `required`. */
weft_status weft_args_i64(const weft_args *args, const char *option, int64_t min, int64_t max,
                          int64_t *out);
weft_status weft_args_f64(const weft_args *args, const char *option, double min, double max,
                          double *out);
/* Returns all values of a repeated option. */
const char *const *weft_args_list(const weft_args *args, const char *option, int *count);
const char *const *weft_args_positional(const weft_args *args, int *count);
/* The argument as it was given, as weft_args_given; NULL: fewer were given. */
const char *weft_args_positional_given(const weft_args *args, int which);
/* Loads the verb's config from `path` with the overrides of "--set KEY=VALUE" (repeated), which
 * every verb with a config has. */
weft_status weft_args_config(const weft_args *args, weft_arena *arena, const char *path, void *out);

#endif

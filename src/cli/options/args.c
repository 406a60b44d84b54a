#include "cli/verb.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define VERB(name) extern const weft_verb weft_verb_##name;
#include "cli/verbs.def"
#undef VERB

#define VERB(name) &weft_verb_##name,
const weft_verb *const weft_verbs[] = {
#include "cli/verbs.def"
};
#undef VERB
const int weft_verb_count = WEFT_COUNT(weft_verbs);

static const weft_option set_option = {
    "--set",
    "KEY=VALUE",
    NULL,
    "override one key of the config; dots reach into sections and lists, as in a.0.b=1",
    .repeated = true,
};

typedef struct value {
    const weft_option *option;
    const char *text; /* borrowed from argv; NULL for a flag */
} value;

struct weft_args {
    const weft_verb *verb;
    value *values; /* in the order given */
    int value_count;
    const char **positional;
    int positional_count;
    const char **list; /* room for what weft_args_list returns, one stretch per option */
    bool help;
    bool *refused; /* settable through const weft_args */
};

const weft_verb *weft_verb_find(const char *name)
{
    for (int i = 0; i < weft_verb_count; i++) {
        if (!strcmp(weft_verbs[i]->name, name))
            return weft_verbs[i];
    }
    return NULL;
}

static const weft_option *find_option(const weft_verb *verb, const char *name, size_t length)
{
    for (int i = 0; i < verb->option_count; i++) {
        const char *own = verb->options[i].name;
        if (strlen(own) == length && !memcmp(own, name, length))
            return &verb->options[i];
    }
    if (verb->config && length == 5 && !memcmp(name, "--set", 5))
        return &set_option;
    return NULL;
}

/* By the words alone: the dashes, which all options share, make no two of them alike. */
static const char *nearest_option(const char *word, const char *const *names, int count)
{
    const char *words[66];
    for (int i = 0; i < count; i++)
        words[i] = names[i] + 2;
    const char *near = weft_nearest_name(word + (word[1] == '-' ? 2 : 1), words, count);
    return near ? near - 2 : NULL;
}

static weft_status unknown_option(const weft_verb *verb, const char *name, size_t length)
{
    const char *names[66];
    char word[64];
    int count = 0;
    for (; count < verb->option_count && count < 64; count++)
        names[count] = verb->options[count].name;
    names[count++] = "--help";
    if (verb->config)
        names[count++] = "--set";
    snprintf(word, sizeof word, "%.*s", (int)(length > 60 ? 60 : length), name);
    const char *near = nearest_option(word, names, count);
    if (near && strcmp(near, word))
        return weft_fail(WEFT_E_ARG, "unknown option '%s' (did you mean '%s'?)", word, near);
    return weft_fail(WEFT_E_ARG, "unknown option '%s' (weft %s --help lists them)", word,
                     verb->name);
}

static bool was_given(const weft_args *args, const weft_option *option)
{
    for (int i = 0; i < args->value_count; i++) {
        if (args->values[i].option == option)
            return true;
    }
    return false;
}

/* One argument that begins with "--"; *used is 1 or 2. */
static weft_status parse_option(weft_args *args, int argc, char *const *argv, int at, int *used)
{
    const char *text = argv[at];
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    *used = 1;
    if (!strcmp(text, "--help") || !strcmp(text, "-h")) {
        args->help = true;
        return WEFT_OK;
    }
    const weft_option *option = find_option(args->verb, text, length);
    if (!option)
        return unknown_option(args->verb, text, length);
    const char *given = equals ? equals + 1 : NULL;
    if (!option->value_name && given)
        return weft_fail(WEFT_E_ARG, "%s takes no value", option->name);
    if (option->value_name && !given) {
        if (at + 1 >= argc)
            return weft_fail(WEFT_E_ARG, "%s needs a value: %s %s", option->name, option->name,
                             option->value_name);
        given = argv[at + 1];
        *used = 2;
    }
    if (!option->repeated && was_given(args, option))
        return weft_fail(WEFT_E_ARG, "%s is given twice", option->name);
    args->values[args->value_count++] = (value){option, given};
    return WEFT_OK;
}

static weft_status check_complete(const weft_args *args)
{
    const weft_verb *verb = args->verb;
    for (int i = 0; i < verb->option_count; i++) {
        const weft_option *option = &verb->options[i];
        if (option->required && !was_given(args, option))
            return weft_fail(WEFT_E_ARG, "%s %s is required: %s", option->name, option->value_name,
                             option->help);
    }
    if (args->positional_count < verb->min_positional)
        return weft_fail(WEFT_E_ARG, "too few arguments; usage: weft %s %s", verb->name,
                         verb->usage);
    if (verb->max_positional >= 0 && args->positional_count > verb->max_positional)
        return weft_fail(WEFT_E_ARG, "unexpected argument '%.80s'; usage: weft %s %s",
                         args->positional[verb->max_positional], verb->name, verb->usage);
    return WEFT_OK;
}

weft_status weft_args_parse(const weft_verb *verb, int argc, char *const *argv, weft_args **out)
{
    weft_status_code status = WEFT_OK;
    bool only_positional = false;
    weft_args *args = weft_alloc(sizeof *args);
    if (!args)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    args->verb = verb;
    args->values = weft_alloc((argc + 1) * (int64_t)sizeof *args->values);
    args->positional = weft_alloc((argc + 1) * (int64_t)sizeof *args->positional);
    args->list = weft_alloc((argc + 1) * (int64_t)sizeof *args->list);
    args->refused = weft_alloc(sizeof *args->refused);
    if (!args->values || !args->positional || !args->list || !args->refused) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory");
        goto out;
    }
    for (int i = 0, used = 1; i < argc; i += used) {
        used = 1;
        bool option = !only_positional && argv[i][0] == '-' && argv[i][1];
        if (option && !strcmp(argv[i], "--"))
            only_positional = true;
        else if (option)
            WEFT_GO(parse_option(args, argc, argv, i, &used));
        else
            args->positional[args->positional_count++] = argv[i];
    }
    if (!args->help)
        WEFT_GO(check_complete(args));
    *out = args;
    args = NULL;
out:
    weft_args_free(args);
    return status;
}

void weft_args_free(weft_args *args)
{
    if (!args)
        return;
    weft_free(args->values);
    weft_free(args->positional);
    weft_free(args->list);
    weft_free(args->refused);
    weft_free(args);
}

bool weft_args_wants_help(const weft_args *args)
{
    return args->help;
}

bool weft_args_refused(const weft_args *args)
{
    return *args->refused;
}

/* ---- getters ------------------------------------------------------------------------------- */

static const weft_option *own_option(const weft_args *args, const char *name)
{
    const weft_option *option = find_option(args->verb, name, strlen(name));
    assert(option && "the verb's table has no such option");
    return option;
}

const char *weft_args_string(const weft_args *args, const char *name)
{
    const weft_option *option = own_option(args, name);
    for (int i = 0; i < args->value_count; i++) {
        if (args->values[i].option == option)
            return args->values[i].text;
    }
    return option->fallback;
}

bool weft_args_flag(const weft_args *args, const char *name)
{
    return was_given(args, own_option(args, name));
}

weft_status weft_args_i64(const weft_args *args, const char *name, int64_t min, int64_t max,
                          int64_t *out)
{
    const char *text = weft_args_string(args, name);
    int64_t number;
    if (text && weft_parse_i64(text, &number) && number >= min && number <= max) {
        *out = number;
        return WEFT_OK;
    }
    *args->refused = true;
    return weft_fail(WEFT_E_ARG, "%s: '%.80s' is not an integer from %lld to %lld", name,
                     text ? text : "", (long long)min, (long long)max);
}

weft_status weft_args_f64(const weft_args *args, const char *name, double min, double max,
                          double *out)
{
    const char *text = weft_args_string(args, name);
    double number;
    if (text && weft_parse_f64(text, &number) && number >= min && number <= max) {
        *out = number;
        return WEFT_OK;
    }
    *args->refused = true;
    return weft_fail(WEFT_E_ARG, "%s: '%.80s' is not a number from %.15g to %.15g", name,
                     text ? text : "", min, max);
}

const char *const *weft_args_list(const weft_args *args, const char *name, int *count)
{
    const weft_option *option = own_option(args, name);
    /* one slot per value given, in stretches per option: earlier results stay valid */
    int start = 0, n = 0;
    for (int i = 0; i < args->value_count; i++) {
        if (args->values[i].option < option)
            start++;
    }
    for (int i = 0; i < args->value_count; i++) {
        if (args->values[i].option == option)
            args->list[start + n++] = args->values[i].text;
    }
    *count = n;
    return args->list + start;
}

const char *const *weft_args_positional(const weft_args *args, int *count)
{
    *count = args->positional_count;
    return args->positional;
}

weft_status weft_args_config(const weft_args *args, weft_arena *arena, const char *path, void *out)
{
    int count;
    const char *const *overrides = weft_args_list(args, "--set", &count);
    return weft_config_load(arena, path, overrides, count, args->verb->config, out);
}

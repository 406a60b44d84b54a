#include "cli/options/args.h"

#include "cli/options/result_place.h"
#include "cli/options/verb.h"

#include "base/launcher.h"
#include "base/location.h"
#include "base/log.h"
#include "storage/input_copy.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define VERB(name) extern const weft_verb weft_verb_##name;
#include "cli/options/verbs.def"
#undef VERB

#define VERB(name) &weft_verb_##name,
const weft_verb *const weft_verbs[] = {
#include "cli/options/verbs.def"
};
#undef VERB
const int weft_verb_count = WEFT_COUNT(weft_verbs);

const weft_option weft_set_option = {
    "--set",
    "KEY=VALUE",
    NULL,
    "set a config key; dots lead into sections and lists, e.g. stages.0.steps=200",
    .repeated = true,
};

typedef struct value {
    const weft_option *option;
    const char *text;    /* borrowed from argv, or a path of a copy; NULL for a flag */
    const char *given;   /* borrowed from argv */
    const char *earlier; /* earlier name that was given; NULL: current name */
} value;

struct weft_args {
    const weft_verb *verb;
    value *values; /* [value_count] in order of the command line */
    int value_count;
    const char **positional, **given; /* [positional_count]; given: as in argv */
    int positional_count;
    const char **list;        /* storage for weft_args_list, one range per option */
    const char *help;         /* section of --help, "" if none was given; NULL: no --help */
    bool *refused;            /* settable through const weft_args */
    weft_input_copy **copies; /* of remote locations; owned, [copy_count] */
    int64_t copy_count, copy_capacity;
    weft_result_place **results; /* owned, [result_count] */
    int64_t result_count, result_capacity;
    char **made; /* values with paths of copies; owned, [made_count] */
    int64_t made_count, made_capacity;
};

const weft_verb *weft_verb_find(const char *name)
{
    for (int i = 0; i < weft_verb_count; i++) {
        if (!strcmp(weft_verbs[i]->name, name))
            return weft_verbs[i];
    }
    return NULL;
}

static bool is_name(const char *own, const char *name, size_t length)
{
    return strlen(own) == length && !memcmp(own, name, length);
}

static const weft_option *find_option(const weft_verb *verb, const char *name, size_t length)
{
    for (int i = 0; i < verb->option_count; i++) {
        if (is_name(verb->options[i].name, name, length))
            return &verb->options[i];
    }
    if (verb->config && is_name("--set", name, length))
        return &weft_set_option;
    return NULL;
}

/* Finds an option by an earlier name, and sets *earlier to that name. */
static const weft_option *find_earlier(const weft_verb *verb, const char *name, size_t length,
                                       const char **earlier)
{
    for (int i = 0; i < verb->option_count; i++) {
        for (const char *const *also = verb->options[i].also; also && *also; also++) {
            if (is_name(*also, name, length)) {
                *earlier = *also;
                return &verb->options[i];
            }
        }
    }
    return NULL;
}

enum { MOST_NAMES = 96 };

/* Returns the nearest option by its words. The dashes are ignored, because all options share
 * them. */
static const char *nearest_option(const char *word, const char *const *names, int count)
{
    const char *words[MOST_NAMES];
    for (int i = 0; i < count; i++)
        words[i] = names[i] + 2;
    const char *near = weft_nearest_name(word + (word[1] == '-' ? 2 : 1), words, count);
    return near ? near - 2 : NULL;
}

static weft_status unknown_option(const weft_verb *verb, const char *name, size_t length)
{
    const char *names[MOST_NAMES], *earlier[MOST_NAMES];
    char word[64];
    int count = 0, earlier_count = 0;
    for (; count < verb->option_count && count < MOST_NAMES - 2; count++)
        names[count] = verb->options[count].name;
    names[count++] = "--help";
    if (verb->config)
        names[count++] = "--set";
    for (int i = 0; i < verb->option_count; i++)
        for (const char *const *a = verb->options[i].also; a && *a && earlier_count < MOST_NAMES;)
            earlier[earlier_count++] = *a++;
    snprintf(word, sizeof word, "%.*s", (int)(length > 60 ? 60 : length), name);
    const char *near = nearest_option(word, names, count);
    const char *former = near ? NULL : nearest_option(word, earlier, earlier_count);
    if (former)
        near = find_earlier(verb, former, strlen(former), &former)->name;
    if (near && strcmp(near, word))
        return weft_error(WEFT_MSG_OPTION_UNKNOWN,
                          WEFT_AT(.key = word, WEFT_DETAILS(WEFT_WORD("nearest", near))),
                          "unknown option; did you mean '%s'?", near);
    return weft_error(WEFT_MSG_OPTION_UNKNOWN, WEFT_AT(.key = word),
                      "unknown option; `weft %s --help` lists the options", verb->name);
}

static const value *first_value(const weft_args *args, const weft_option *option)
{
    for (int i = 0; i < args->value_count; i++) {
        if (args->values[i].option == option)
            return &args->values[i];
    }
    return NULL;
}

static bool is_set(const weft_args *args, const weft_option *option)
{
    return first_value(args, option) != NULL;
}

static weft_status refuse_repetition(const value *first, const value *second)
{
    const weft_option *option = first->option;
    const weft_message_fields *at = WEFT_AT(.key = option->name, .value = second->text);
    if (first->earlier == second->earlier)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, at, "this option is given twice");
    return weft_error(WEFT_MSG_OPTION_CONFLICT, at,
                      "this option is given twice, as %s and as %s, its earlier name; remove %s",
                      option->name, first->earlier ? first->earlier : second->earlier,
                      first->earlier ? first->earlier : second->earlier);
}

/* Parses one argument that starts with "--"; *used is 1 or 2. */
static weft_status parse_option(weft_args *args, int argc, char *const *argv, int at, int *used)
{
    const char *text = argv[at];
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    *used = 1;
    if (is_name("--help", text, length) || !strcmp(text, "-h")) {
        *used = !equals && at + 1 < argc && argv[at + 1][0] != '-' ? 2 : 1;
        args->help = equals ? equals + 1 : *used == 2 ? argv[at + 1] : "";
        return WEFT_OK;
    }
    const char *earlier = NULL;
    const weft_option *option = find_option(args->verb, text, length);
    if (!option)
        option = find_earlier(args->verb, text, length, &earlier);
    if (!option)
        return unknown_option(args->verb, text, length);
    const char *assigned = equals ? equals + 1 : NULL;
    if (!option->value_name && assigned)
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = option->name, .value = assigned),
                          "this option takes no value");
    if (option->value_name && !assigned) {
        if (at + 1 >= argc)
            return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = option->name),
                              "this option needs a value: %s %s", option->name, option->value_name);
        assigned = argv[at + 1];
        *used = 2;
    }
    const value *first = first_value(args, option), own = {option, assigned, assigned, earlier};
    if (!option->repeated && first)
        return refuse_repetition(first, &own);
    args->values[args->value_count++] = own;
    return WEFT_OK;
}

/* Prints the current names of the earlier names given, each once. */
static weft_status print_renamed(const weft_args *args)
{
    weft_buf text = {0};
    int count = 0;
    weft_message_detail *renamed;
    WEFT_TRY(WEFT_NEW(renamed, args->value_count + 1, "the names of options"));
    for (int i = 0; i < args->value_count; i++) {
        const value *v = &args->values[i];
        bool listed = !v->earlier;
        for (int k = 0; k < i && !listed; k++)
            listed = args->values[k].earlier == v->earlier;
        if (listed)
            continue;
        weft_buf_printf(&text, "%s%s is now %s", count ? ", " : "", v->earlier, v->option->name);
        renamed[count++] = (weft_message_detail)WEFT_WORD(v->earlier, v->option->name);
    }
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&text));
    if (count)
        weft_notice(WEFT_MSG_OPTION_RENAMED, WEFT_AT(.details = renamed), "%s", text.data);
out:
    weft_free(renamed);
    weft_buf_free(&text);
    return status;
}

/* Copies a remote location; *path is borrowed. */
static weft_status copy_location(weft_args *args, const char *location, bool configs,
                                 const char **path)
{
    WEFT_TRY(weft_grow((void **)&args->copies, args->copy_count, &args->copy_capacity,
                       sizeof(weft_input_copy *)));
    weft_input_copy **copy = &args->copies[args->copy_count];
    WEFT_TRY(configs ? weft_input_copy_open_configs(location, copy)
                     : weft_input_copy_open(location, copy));
    *path = weft_input_copy_path(args->copies[args->copy_count++]);
    return WEFT_OK;
}

/* The location in a value with a name before it, and its length without a weight. */
static const char *find_location(const weft_option *option, const char *text, size_t *length)
{
    const char *equals = strchr(text, '='), *scheme = strstr(text, "://");
    if (equals && scheme && equals < scheme)
        text = equals + 1;
    const char *colon = strrchr(text, ':');
    double weight;
    const bool weighted = strstr(option->value_name, "[:WEIGHT]") && colon && colon[1] != '/' &&
                          weft_parse_f64(colon + 1, &weight);
    *length = weighted ? (size_t)(colon - text) : strlen(text);
    return text;
}

/* "[NAME=]DIR" without a name: the last name of the location. */
static void put_name(const char *location, size_t length, weft_buf *to)
{
    while (length > 0 && location[length - 1] == '/')
        length--;
    size_t first = length;
    while (first > 0 && location[first - 1] != '/')
        first--;
    weft_buf_printf(to, "%.*s=", (int)(length - first), location + first);
}

/* Keeps a new value as long as the arguments. */
static weft_status keep_value(weft_args *args, weft_buf *whole, const char **text)
{
    WEFT_TRY(weft_buf_check(whole));
    WEFT_TRY(weft_grow((void **)&args->made, args->made_count, &args->made_capacity,
                       sizeof *args->made));
    args->made[args->made_count++] = whole->data;
    *text = whole->data;
    *whole = (weft_buf){0};
    return WEFT_OK;
}

/* Replaces a remote location by the path of its copy. */
static weft_status copy_input(weft_args *args, const weft_option *option, const char **text)
{
    size_t length;
    const char *at = find_location(option, *text, &length), *path;
    weft_buf whole = {0};
    if (!weft_location_is_remote(at))
        return WEFT_OK;
    char *location = weft_strdup(at);
    WEFT_TRY(WEFT_ALLOCATED(location, "%s", option->name));
    location[length] = 0;
    weft_status_code status = WEFT_OK;
    WEFT_GO(copy_location(args, location, option->copied_configs, &path));
    if (at == *text && !at[length] && option->value_name[0] != '[') {
        *text = path;
        goto out;
    }
    weft_buf_append(&whole, *text, at - *text);
    if (at == *text && option->value_name[0] == '[')
        put_name(at, length, &whole);
    weft_buf_printf(&whole, "%s%s", path, at + length);
    WEFT_GO(keep_value(args, &whole, text));
out:
    weft_buf_free(&whole);
    weft_free(location);
    return status;
}

/* Does the same for each of the places in "BACKBONE,HEADS". */
static weft_status copy_inputs(weft_args *args, const weft_option *option, const char **text)
{
    const char *comma = strchr(option->value_name, ',') ? strchr(*text, ',') : NULL;
    weft_buf whole = {0};
    if (!comma)
        return copy_input(args, option, text);
    char *first = weft_strdup(*text);
    WEFT_TRY(WEFT_ALLOCATED(first, "%s", option->name));
    first[comma - *text] = 0;
    const char *one = first, *other = comma + 1;
    weft_status_code status = WEFT_OK;
    WEFT_GO(copy_input(args, option, &one));
    WEFT_GO(copy_input(args, option, &other));
    weft_buf_printf(&whole, "%s,%s", one, other);
    WEFT_GO(keep_value(args, &whole, text));
out:
    weft_buf_free(&whole);
    weft_free(first);
    return status;
}

/* Replaces the location of a result by a path of this machine. */
static weft_status place_result(weft_args *args, const weft_option *option, const char **text)
{
    if (!weft_location_is_remote(*text))
        return WEFT_OK;
    WEFT_TRY(weft_grow((void **)&args->results, args->result_count, &args->result_capacity,
                       sizeof *args->results));
    weft_result_place **place = &args->results[args->result_count];
    WEFT_TRY(weft_result_place_open(*text, option->result, place));
    *text = weft_result_place_path(*place);
    args->result_count++;
    return WEFT_OK;
}

/* Whether the value is a path. Presets that may be files are checked where they are read. */
static bool is_path(const weft_option *option)
{
    static const char *const paths[] = {"DIR", "FILE", "PATH"};
    bool path = option->value_name && !strncmp(option->value_name, "FILE.", 5);
    for (int i = 0; i < WEFT_COUNT(paths) && option->value_name; i++)
        path |= !strcmp(option->value_name, paths[i]);
    return path;
}

static weft_status settle_option(weft_args *args, value *v)
{
    const weft_option *option = v->option;
    if (option->copied)
        WEFT_TRY(copy_inputs(args, option, &v->text));
    if (option->result)
        WEFT_TRY(place_result(args, option, &v->text));
    return is_path(option) && !option->remote ? weft_location_check_local(v->text, option->name)
                                              : WEFT_OK;
}

/* Buckets and servers, where the verb needs a path. */
static weft_status settle_places(weft_args *args)
{
    for (int i = 0; i < args->value_count; i++)
        WEFT_TRY(weft_error_at(settle_option(args, &args->values[i]),
                               WEFT_AT(.key = args->values[i].option->name)));
    const int places = args->verb->texts_positional ? 1 : args->positional_count;
    for (int i = 0; i < places; i++) {
        const char **text = &args->positional[i];
        if (args->verb->copies_positional && weft_location_is_remote(*text))
            WEFT_TRY(copy_location(args, *text, false, text));
        if (!args->verb->remote_positional)
            WEFT_TRY(weft_location_check_local(*text, NULL));
    }
    return WEFT_OK;
}

static weft_status check_complete(const weft_args *args)
{
    const weft_verb *verb = args->verb;
    for (int i = 0; i < verb->option_count; i++) {
        const weft_option *option = &verb->options[i];
        if (option->required && !is_set(args, option))
            return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = option->name),
                              "%s is required: %s", option->value_name, option->help);
    }
    if (args->positional_count < verb->min_positional)
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_NOWHERE,
                          "too few arguments; `weft %s --help` prints the usage", verb->name);
    if (verb->max_positional >= 0 && args->positional_count > verb->max_positional)
        return weft_error(WEFT_MSG_OPTION_UNKNOWN,
                          WEFT_AT(.value = args->positional[verb->max_positional]),
                          "unexpected argument '%.80s'; `weft %s --help` prints the usage",
                          args->positional[verb->max_positional], verb->name);
    return WEFT_OK;
}

weft_status weft_args_parse(const weft_verb *verb, int argc, char *const *argv, weft_args **out)
{
    weft_status_code status = WEFT_OK;
    bool only_positional = false;
    weft_args *args;
    WEFT_TRY(WEFT_NEW(args, 1, "the arguments"));
    args->verb = verb;
    args->values = weft_calloc(argc + 1, sizeof *args->values);
    args->positional = weft_calloc(argc + 1, sizeof *args->positional);
    args->given = weft_calloc(argc + 1, sizeof *args->given);
    args->list = weft_calloc(argc + 1, sizeof *args->list);
    args->refused = weft_alloc(sizeof *args->refused);
    WEFT_GO(WEFT_ALLOCATED(args->values && args->positional && args->given && args->list &&
                               args->refused,
                           "the arguments"));
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
    memcpy(args->given, args->positional, (size_t)args->positional_count * sizeof *args->given);
    if (!args->help)
        WEFT_GO(settle_places(args));
    if (!args->help && weft_launcher_rank() <= 0)
        WEFT_GO(print_renamed(args));
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
    for (int64_t i = 0; i < args->copy_count; i++)
        weft_input_copy_close(args->copies[i]);
    weft_free(args->copies);
    for (int64_t i = 0; i < args->result_count; i++)
        weft_result_place_close(args->results[i]);
    weft_free(args->results);
    for (int64_t i = 0; i < args->made_count; i++)
        weft_free(args->made[i]);
    weft_free(args->made);
    weft_free(args->values);
    weft_free(args->positional);
    weft_free(args->given);
    weft_free(args->list);
    weft_free(args->refused);
    weft_free(args);
}

const char *weft_args_help(const weft_args *args)
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
    const value *first = first_value(args, option);
    return first ? first->text : option->fallback;
}

bool weft_args_is_copy(const weft_args *args, const char *name)
{
    const char *text = weft_args_string(args, name);
    for (int64_t i = 0; i < args->copy_count; i++)
        if (text == weft_input_copy_path(args->copies[i]))
            return true;
    return false;
}

const char *weft_args_given(const weft_args *args, const char *name)
{
    const weft_option *option = own_option(args, name);
    const value *first = first_value(args, option);
    return first ? first->given : option->fallback;
}

const char *weft_args_shared_folder(const weft_args *args, const char *name)
{
    const char *given = weft_args_given(args, name);
    for (int64_t i = 0; i < args->result_count; i++)
        if (weft_result_place_location(args->results[i]) == given)
            return weft_result_place_folder(args->results[i]);
    return NULL;
}

weft_status_code weft_args_send(weft_args *args, weft_status_code status)
{
    weft_error_copy *error = status == WEFT_OK ? NULL : weft_error_save();
    for (int64_t i = 0; i < args->result_count; i++) {
        const weft_status_code sent = weft_result_place_send(args->results[i], status == WEFT_OK);
        if (sent != WEFT_OK && error)
            weft_warn_error(WEFT_MSG_STORAGE_SEND, "the command has failed as well");
        else if (sent != WEFT_OK) {
            error = weft_error_save();
            status = sent;
        }
    }
    if (error)
        weft_error_restore(error);
    weft_free(error);
    return status;
}

bool weft_args_flag(const weft_args *args, const char *name)
{
    return is_set(args, own_option(args, name));
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
    return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = name, .value = text),
                      "'%.80s' is not an integer from %" PRId64 " to %" PRId64, text ? text : "",
                      min, max);
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
    return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = name, .value = text),
                      "'%.80s' is not a number from %.15g to %.15g", text ? text : "", min, max);
}

const char *const *weft_args_list(const weft_args *args, const char *name, int *count)
{
    const weft_option *option = own_option(args, name);
    /* one slot per given value, in ranges per option, so that earlier results stay valid */
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

const char *weft_args_positional_given(const weft_args *args, int which)
{
    return which < args->positional_count ? args->given[which] : NULL;
}

weft_status weft_args_config(const weft_args *args, weft_arena *arena, const char *path, void *out)
{
    int count;
    const char *const *overrides = weft_args_list(args, "--set", &count);
    return weft_config_load(arena, path, overrides, count, args->verb->config, out);
}

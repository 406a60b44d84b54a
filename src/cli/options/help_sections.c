/* The sections of a verb's help, from its table and the tables of its config. */
#include "cli/options/help_sections.h"

#include "cli/options/args.h"

#include <ctype.h>
#include <string.h>

static const weft_option help_option = {
    "--help",
    "[SECTION]",
    NULL,
    "print this page, one section in full, or `all`",
};

static bool has_option(const weft_verb *verb, const char *name)
{
    for (int i = 0; i < verb->option_count; i++) {
        if (!strcmp(verb->options[i].name, name))
            return true;
    }
    return false;
}

const weft_option *weft_help_option(const weft_verb *verb, int i)
{
    const int set = verb->config && !has_option(verb, "--set");
    if (i < verb->option_count)
        return &verb->options[i];
    if (set && i == verb->option_count)
        return &weft_set_option;
    return i == verb->option_count + set ? &help_option : NULL;
}

const char *weft_help_group(const weft_verb *verb, const weft_option *option)
{
    for (const weft_option_group *g = verb->groups; g && g->name; g++)
        if (option->group && !strcmp(g->name, option->group))
            return g->name;
    return "options";
}

int weft_help_clause(const char *text)
{
    for (const char *at = text; *at; at++) {
        if (*at == ';')
            return (int)(at - text);
        const bool sentence = *at == '.' && at[1] == ' ' && (isupper(at[2]) || isdigit(at[2]));
        const bool abbreviated = at - text >= 3 && !memcmp(at - 3, "e.g", 3);
        if (sentence && !abbreviated)
            return (int)(at - text);
    }
    return (int)strlen(text);
}

static void add(weft_help_section *out, int *count, weft_help_section section)
{
    if (*count < WEFT_HELP_SECTIONS)
        out[(*count)++] = section;
}

static void add_config(const weft_section *root, weft_help_section *out, int *count)
{
    bool plain = false;
    for (int i = 0; i < root->key_count && !plain; i++)
        plain = !root->keys[i].section && root->keys[i].type != WEFT_KEY_GONE &&
                root->keys[i].type != WEFT_KEY_MOVED;
    if (plain)
        add(out, count, (weft_help_section){WEFT_HELP_KEYS, "keys", "keys of the top level"});
    for (int i = 0; i < root->key_count; i++) {
        const weft_key *key = &root->keys[i];
        if (key->section)
            add(out, count,
                (weft_help_section){WEFT_HELP_CONFIG, key->name,
                                    key->help && key->help[0] ? key->help : key->section->help});
    }
}

int weft_help_sections(const weft_verb *verb, weft_help_section out[WEFT_HELP_SECTIONS])
{
    int count = 0;
    if (verb->details && strstr(verb->details, "\n\n"))
        add(out, &count, (weft_help_section){WEFT_HELP_DETAILS, "details", "more about the verb"});
    add(out, &count, (weft_help_section){WEFT_HELP_OPTIONS, "options", "the options above"});
    for (const weft_option_group *g = verb->groups; g && g->name; g++)
        add(out, &count, (weft_help_section){WEFT_HELP_OPTIONS, g->name, g->help});
    for (const weft_help_table *t = verb->more; t && t->name; t++)
        add(out, &count, (weft_help_section){WEFT_HELP_TABLE, t->name, t->help, t});
    if (verb->config)
        add_config(verb->config, out, &count);
    return count;
}

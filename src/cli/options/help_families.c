/* Accepted fields of the models' configs, from the families' tables. */
#include "cli/options/help_families.h"

#include "base/wrap.h"
#include "cli/options/verb.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "model/registry.h"

#include <stdio.h>
#include <string.h>

static const char *type_of(const weft_field *f)
{
    switch (f->type) {
    case WEFT_FIELD_I64: return "integer";
    case WEFT_FIELD_F64: return "number";
    case WEFT_FIELD_BOOL: return "true/false";
    case WEFT_FIELD_I64S: return "integers";
    case WEFT_FIELD_F64S: return "numbers";
    case WEFT_FIELD_BOOLS: return "list of true/false";
    default: return NULL; /* no choices */
    }
}

static void put_default(const weft_field *f, char text[96])
{
    if (f->default_source == WEFT_DEFAULT_SOURCE_LATENTS)
        snprintf(text, 96, "the autoencoder's");
    else if (f->default_source == WEFT_DEFAULT_SOURCE_TEXT)
        snprintf(text, 96, "the text encoder's");
    else if (!f->fallback)
        snprintf(text, 96, "see there");
    else if (f->fallback[0] == '=')
        snprintf(text, 96, "as %s", f->fallback + 1);
    else
        snprintf(text, 96, "%s", f->fallback);
}

static void put_text(const char *key, const char *help, const char *type, const char *range,
                     const char *fallback, weft_buf *out)
{
    weft_buf_printf(out, "  %-28s ", key);
    if (strlen(key) > 28)
        weft_buf_printf(out, "\n%*s", 31, "");
    weft_buf_wrap(out, 31, help);
    weft_buf_printf(out, "\n%*s[%s%s; default ", 31, "", type, range);
    weft_buf_wrap(out, 32, fallback);
    weft_buf_printf(out, "]\n");
}

static void put_field(const weft_field *f, bool markdown, weft_buf *out)
{
    char fallback[96], range[64] = "", name[WEFT_FIELD_NAME];
    const char *type = type_of(f);
    if (!type)
        return;
    weft_field_name(f, name);
    put_default(f, fallback);
    if (f->min != 0 || f->max != 0)
        snprintf(range, sizeof range, ", %.15g to %.15g", f->min, f->max);
    if (markdown)
        weft_buf_printf(out, "| `%s` | %s%s | `%s` | %s |\n", name, type, range, fallback, f->help);
    else
        put_text(name, f->help, type, range, fallback, out);
}

static void put_markdown(const weft_family *f, weft_buf *out)
{
    weft_buf_printf(out,
                    "\n`%s` (%s)\n\n| field of `config` | type | default | meaning "
                    "|\n|---|---|---|---|\n",
                    f->class_name, weft_role_name(f->role));
    for (int k = 0; k < f->fields; k++)
        put_field(&f->field[k], true, out);
}

/* Markdown: the fields of all classes; text: the names of the classes. */
static void put_families(bool markdown, weft_buf *out)
{
    weft_buf_printf(out, markdown ? "\n## Model classes\n" : "\n");
    for (int i = 0; weft_families[i]; i++) {
        const weft_family *f = weft_families[i];
        if (markdown)
            put_markdown(f, out);
        else
            weft_buf_printf(out, "  %-34s %s\n", f->class_name, weft_role_name(f->role));
    }
}

static bool put_family(const char *name, weft_buf *out)
{
    for (int i = 0; weft_families[i]; i++) {
        const weft_family *f = weft_families[i];
        if (strcmp(f->class_name, name) != 0)
            continue;
        weft_buf_printf(out, "%s: %s; fields of its config\n\n", name, weft_role_name(f->role));
        for (int k = 0; k < f->fields; k++)
            put_field(&f->field[k], false, out);
        return true;
    }
    return false;
}

const weft_help_table weft_help_families[] = {
    {"models", "model classes; --help CLASS prints the fields of its config", put_families,
     put_family},
    {0},
};

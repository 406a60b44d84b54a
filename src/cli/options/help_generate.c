/* Tables of generation in addition to its options: models with image conditioning, samplers,
 * guidance methods, and scheduler classes. */
#include "cli/options/help_generate.h"

#include "base/wrap.h"
#include "cli/options/verb.h"
#include "diffusion/guidance.h"
#include "diffusion/scheduler.h"
#include "model/family.h"
#include "model/registry.h"

#include <string.h>

static void put_row(bool markdown, int column, const char *name, const char *help, weft_buf *out)
{
    if (markdown) {
        weft_buf_printf(out, "| `%s` | %s |\n", name, help);
        return;
    }
    weft_buf_printf(out, "  %-*s ", column - 3, name);
    weft_buf_wrap(out, column, help);
    weft_buf_printf(out, "\n");
}

static void put_title(bool markdown, const char *title, weft_buf *out)
{
    if (markdown)
        weft_buf_printf(out, "\n## %s\n\n| name | description |\n|---|---|\n", title);
    else
        weft_buf_printf(out, "\n");
}

static void put_image_models(bool markdown, weft_buf *out)
{
    put_title(markdown, "Models with image conditioning (--image, --last-image)", out);
    for (int i = 0; weft_families[i]; i++)
        if (weft_families[i]->frame_condition)
            put_row(markdown, 38, weft_families[i]->class_name,
                    weft_families[i]->frame_condition_help, out);
}

static void put_samplers(bool markdown, weft_buf *out)
{
    put_title(markdown, "Samplers (--sampler)", out);
    for (int i = 0; weft_samplers[i]; i++)
        put_row(markdown, 20, weft_samplers[i]->name, weft_samplers[i]->help, out);
}

static void put_guidance(bool markdown, weft_buf *out)
{
    put_title(markdown, "Guidance methods (--guidance-method)", out);
    for (int i = 0; weft_guidances[i]; i++)
        put_row(markdown, 20, weft_guidances[i]->name, weft_guidances[i]->help, out);
}

static void put_schedulers(bool markdown, weft_buf *out)
{
    weft_buf_printf(out, markdown ? "\n## Schedulers\n\nClasses of scheduler_config.json, and the "
                                    "sampler of each.\n\n"
                                  : "\n");
    for (int i = 0; weft_scheduler_classes[i].name; i++)
        weft_buf_printf(out, markdown ? "- `%s`: `%s`\n" : "  %-36s%s\n",
                        weft_scheduler_classes[i].name, weft_scheduler_classes[i].sampler->name);
}

/* The first clauses are equal, so that the first screen lists the tables on one line. */
const weft_help_table weft_help_generate[] = {
    {"samplers", "accepted names; samplers of --sampler", put_samplers},
    {"methods", "accepted names; guidance methods of --guidance-method", put_guidance},
    {"schedulers", "accepted names; classes of scheduler_config.json with the sampler of each",
     put_schedulers},
    {"image-models", "accepted names; models with image conditioning (--image, --last-image)",
     put_image_models},
    {0},
};

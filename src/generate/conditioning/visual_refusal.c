#include "generate/conditioning/visual_refusal.h"

#include "model/registry.h"

const char *weft_visual_option(const weft_visual_inputs *f)
{
    return f->image ? "--image" : f->before ? "--given-frames" : "--window-mode";
}

const char *weft_visual_alternative(const weft_visual_inputs *f)
{
    return f->image    ? "Use --video FILE to start from images with any model"
           : f->before ? "Omit the option to change a video with any model"
                       : "Use --window-mode blend for longer videos with any model";
}

weft_status weft_visual_refuse(const weft_model *model, const weft_visual_inputs *f)
{
    weft_buf families = {0};
    for (int i = 0; weft_families[i]; i++)
        if (weft_families[i]->frame_condition)
            weft_buf_printf(&families, "%s%s (%s)", families.len ? ", " : "",
                            weft_families[i]->class_name, weft_families[i]->frame_condition_help);
    const weft_status_code status = weft_error(
        WEFT_MSG_MODEL_INPUT_UNSUPPORTED, WEFT_AT(.key = weft_visual_option(f)),
        "%s does not take given frames. Models that do: %s. %s.", weft_model_class(model),
        families.data ? families.data : "?", weft_visual_alternative(f));
    weft_buf_free(&families);
    return status;
}

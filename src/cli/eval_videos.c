#include "cli/eval_videos.h"

#include "evaluate/eval_print.h"
#include "evaluate/video_evaluation.h"

weft_status weft_eval_finish(const weft_args *args, json_t *result)
{
    const char *path = weft_args_string(args, "--json");
    const weft_status_code status = path ? weft_json_save(path, result) : WEFT_OK;
    json_decref(result);
    return status;
}

weft_status weft_eval_videos(const weft_args *args)
{
    const weft_video_eval_options o = {.videos = weft_args_string(args, "--videos"),
                                       .prompts = weft_args_string(args, "--prompts"),
                                       .clip = weft_args_string(args, "--clip"),
                                       .dino = weft_args_string(args, "--dino"),
                                       .amt = weft_args_string(args, "--amt"),
                                       .features = weft_args_string(args, "--features"),
                                       .reference_features =
                                           weft_args_string(args, "--reference-features")};
    json_t *r;
    if (!o.features != !o.reference_features)
        return weft_error(WEFT_MSG_OPTION_REQUIRED,
                          WEFT_AT(.key = o.features ? "--reference-features" : "--features"),
                          "a Frechet distance needs --features and --reference-features");
    if (!o.videos && (!o.features || o.clip || o.dino || o.amt || o.prompts))
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--videos"),
                          "weft eval videos needs --videos PATH, a folder of videos or one video");
    WEFT_TRY(weft_evaluate_videos(&o, &r));
    weft_eval_print_videos(r);
    return weft_eval_finish(args, r);
}

/* Settings of S3 from the sources of the AWS tools, in the same order: environment, ~/.aws/config
 * and ~/.aws/credentials. */
#ifndef WEFT_STORAGE_AWS_CONFIG_H
#define WEFT_STORAGE_AWS_CONFIG_H

#include "base/memory.h"

/* Sources of credentials; the first one that is set is used. */
typedef enum weft_aws_source {
    WEFT_AWS_KEYS,      /* the settings have them */
    WEFT_AWS_PROCESS,   /* output of a command, credential_process */
    WEFT_AWS_CONTAINER, /* an endpoint that the environment names: ECS, EKS pod identity */
    WEFT_AWS_INSTANCE,  /* instance metadata of EC2 */
    WEFT_AWS_UNSIGNED,  /* requests are not signed: WEFT_S3_UNSIGNED=1, for public buckets */
} weft_aws_source;

/* Strings are in the arena. */
typedef struct weft_aws_settings {
    weft_aws_source source;
    const char *access_key, *secret_key, *session_token; /* KEYS; session_token NULL: none */
    const char *process;                                 /* PROCESS: the command */
    const char *container;                               /* CONTAINER: the URL */
    const char *instance;                                /* INSTANCE: "http://169.254.169.254" */
    const char *profile;                                 /* "default" */
    const char *region;                                  /* "us-east-1" if none is set */
    const char *endpoint; /* "https://host:port"; NULL: AWS's of the region */
    bool path_style;      /* the bucket is in the path, not in the host name */
    int64_t attempts;     /* of a request, at least 1 */
} weft_aws_settings;

/* WEFT_E_CONFIG: half of a pair of keys, a profile that does not exist, or a setting that weft does
 * not support. The message names the place, and no secret. */
weft_status weft_aws_settings_read(weft_arena *arena, weft_aws_settings *settings);

#endif

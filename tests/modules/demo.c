/* A module for a Redis server, as small as can be, with each kind of command that a proxy has to route.

   The names and signatures are those of Redis's module API, version 1; no header of Redis is needed. */

#include <stddef.h>

typedef struct Context Context;
typedef struct Text Text;
typedef struct Key Key;
typedef struct Blocked Blocked;
typedef long long millis;
typedef int (*Command)(Context *context, Text **arguments, int count);

static int (*GetApi)(const char *name, void *function);
static int (*SetModuleAttribs)(Context *, const char *name, int version, int api);
static int (*CreateCommand)(Context *, const char *name, Command, const char *flags, int first, int last, int step);
static int (*ReplyWithSimpleString)(Context *, const char *);
static int (*ReplyWithLongLong)(Context *, long long);
static int (*ReplyWithNull)(Context *);
static int (*WrongArity)(Context *);
static int (*IsKeysPositionRequest)(Context *);
static void (*KeyAtPos)(Context *, int position);
static void *(*OpenKey)(Context *, Text *name, int mode);
static void (*CloseKey)(Key *);
static int (*StringSet)(Key *, Text *value);
static int (*StringToLongLong)(const Text *, long long *);
static Blocked *(*BlockClient)(Context *, Command reply, Command timeout, void (*release)(Context *, void *), millis);
static int (*UnblockClient)(Blocked *, void *data);
static unsigned long long (*CreateTimer)(Context *, millis, void (*fire)(Context *, void *), void *data);

enum { OK = 0, READ = 1, WRITE = 2 };

static int set(Context *context, Text *name, Text *value) {
    Key *key = OpenKey(context, name, READ | WRITE);
    StringSet(key, value);
    CloseKey(key);
    return ReplyWithSimpleString(context, "OK");
}

/* DEMO.SET key value: its key is at a fixed place. */
static int demo_set(Context *context, Text **arguments, int count) {
    return count == 3 ? set(context, arguments[1], arguments[2]) : WrongArity(context);
}

/* DEMO.LAST value ... key: only the module knows where its key is. */
static int demo_last(Context *context, Text **arguments, int count) {
    if (count < 3) return WrongArity(context);
    if (IsKeysPositionRequest(context)) {
        KeyAtPos(context, count - 1);
        return OK;
    }
    return set(context, arguments[count - 1], arguments[1]);
}

/* DEMO.LOOK anything ... key: whether the key is there; only the module knows where its key is. */
static int demo_look(Context *context, Text **arguments, int count) {
    Key *key;
    if (count < 3) return WrongArity(context);
    if (IsKeysPositionRequest(context)) {
        KeyAtPos(context, count - 1);
        return OK;
    }
    key = OpenKey(context, arguments[count - 1], READ);
    if (key != NULL) CloseKey(key);
    return ReplyWithLongLong(context, key != NULL);
}

/* DEMO.COUNT: it names no key. */
static int demo_count(Context *context, Text **arguments, int count) {
    (void)arguments;
    return ReplyWithLongLong(context, count);
}

static int woken(Context *context, Text **arguments, int count) {
    return count == 3 ? set(context, arguments[1], arguments[2]) : ReplyWithNull(context);
}

static void ring(Context *context, void *blocked) {
    (void)context;
    UnblockClient(blocked, NULL);
}

/* DEMO.LATER key milliseconds: waits, and sets the key then. */
static int demo_later(Context *context, Text **arguments, int count) {
    long long time;
    if (count != 3 || StringToLongLong(arguments[2], &time) != OK) return WrongArity(context);
    CreateTimer(context, time, ring, BlockClient(context, woken, NULL, NULL, 0));
    return OK;
}

static int create(Context *context, const char *name, Command command, const char *flags, int place) {
    return CreateCommand(context, name, command, flags, place, place, place);
}

int RedisModule_OnLoad(Context *context) {
    /* The first field of a context is the function that finds the others. */
    GetApi = *(int (**)(const char *, void *))context;
    GetApi("RedisModule_SetModuleAttribs", &SetModuleAttribs);
    GetApi("RedisModule_CreateCommand", &CreateCommand);
    GetApi("RedisModule_ReplyWithSimpleString", &ReplyWithSimpleString);
    GetApi("RedisModule_ReplyWithLongLong", &ReplyWithLongLong);
    GetApi("RedisModule_ReplyWithNull", &ReplyWithNull);
    GetApi("RedisModule_WrongArity", &WrongArity);
    GetApi("RedisModule_IsKeysPositionRequest", &IsKeysPositionRequest);
    GetApi("RedisModule_KeyAtPos", &KeyAtPos);
    GetApi("RedisModule_OpenKey", &OpenKey);
    GetApi("RedisModule_CloseKey", &CloseKey);
    GetApi("RedisModule_StringSet", &StringSet);
    GetApi("RedisModule_StringToLongLong", &StringToLongLong);
    GetApi("RedisModule_BlockClient", &BlockClient);
    GetApi("RedisModule_UnblockClient", &UnblockClient);
    GetApi("RedisModule_CreateTimer", &CreateTimer);
    SetModuleAttribs(context, "demo", 1, 1);
    create(context, "demo.set", demo_set, "write", 1);
    create(context, "demo.last", demo_last, "write getkeys-api", 0);
    create(context, "demo.look", demo_look, "readonly getkeys-api", 0);
    create(context, "demo.count", demo_count, "readonly", 0);
    create(context, "demo.known", demo_count, "readonly", 0);
    create(context, "demo.later", demo_later, "write blocking", 1);
    return OK;
}

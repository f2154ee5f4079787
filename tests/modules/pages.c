/* A module for a Redis server with a type of its own: a page of bytes, which nobody else can take apart.

   The names and signatures are those of Redis's module API, version 1; no header of Redis is needed. */

#include <stddef.h>
#include <stdint.h>

typedef struct Context Context;
typedef struct Text Text;
typedef struct Key Key;
typedef struct Type Type;
typedef struct File File;
typedef int (*Command)(Context *context, Text **arguments, int count);

typedef struct {
    uint64_t version;
    void *(*load)(File *, int encoding);
    void (*save)(File *, void *value);
    void (*rewrite)(File *, Text *key, void *value);
    size_t (*memory)(const void *value);
    void (*digest)(void *, void *value);
    void (*release)(void *value);
} Methods;

typedef struct {
    size_t length;
    unsigned char *bytes;
} Page;

static int (*GetApi)(const char *name, void *function);
static int (*SetModuleAttribs)(Context *, const char *name, int version, int api);
static int (*CreateCommand)(Context *, const char *name, Command, const char *flags, int first, int last, int step);
static Type *(*CreateDataType)(Context *, const char *name, int encoding, Methods *);
static int (*ReplyWithLongLong)(Context *, long long);
static int (*ReplyWithNull)(Context *);
static int (*WrongArity)(Context *);
static Key *(*OpenKey)(Context *, Text *name, int mode);
static void (*CloseKey)(Key *);
static int (*SetValue)(Key *, Type *, void *value);
static Type *(*GetType)(Key *);
static void *(*GetValue)(Key *);
static int (*StringToLongLong)(const Text *, long long *);
static void *(*Alloc)(size_t);
static void (*Free)(void *);
static void (*SaveStringBuffer)(File *, const char *, size_t);
static char *(*LoadStringBuffer)(File *, size_t *length);

enum { OK = 0, READ = 1, WRITE = 2 };

static Type *page_type;

static long long sum(const Page *page) {
    long long found = 0;
    for (size_t place = 0; place < page->length; place++) found = (found * 31 + page->bytes[place]) % 1000003;
    return found;
}

/* PAGE.WRITE key length seed: a page of so many bytes, which differ by the seed. Gives their checksum. */
static int page_write(Context *context, Text **arguments, int count) {
    long long length, seed;
    if (count != 4 || StringToLongLong(arguments[2], &length) != OK || StringToLongLong(arguments[3], &seed) != OK)
        return WrongArity(context);
    Page *page = Alloc(sizeof *page);
    page->length = (size_t)length;
    page->bytes = Alloc(page->length + 1);
    uint32_t next = (uint32_t)seed;
    for (size_t place = 0; place < page->length; place++) {
        next = next * 1664525u + 1013904223u;
        page->bytes[place] = (unsigned char)(next >> 24);
    }
    Key *key = OpenKey(context, arguments[1], READ | WRITE);
    SetValue(key, page_type, page);
    CloseKey(key);
    return ReplyWithLongLong(context, sum(page));
}

/* PAGE.SUM key: the checksum of a page. */
static int page_sum(Context *context, Text **arguments, int count) {
    if (count != 2) return WrongArity(context);
    Key *key = OpenKey(context, arguments[1], READ);
    if (!key || GetType(key) != page_type) return ReplyWithNull(context);
    long long found = sum(GetValue(key));
    CloseKey(key);
    return ReplyWithLongLong(context, found);
}

static void *load(File *file, int encoding) {
    (void)encoding;
    Page *page = Alloc(sizeof *page);
    page->bytes = (unsigned char *)LoadStringBuffer(file, &page->length);
    return page;
}

static void save(File *file, void *value) {
    Page *page = value;
    SaveStringBuffer(file, (char *)page->bytes, page->length);
}

static void rewrite(File *file, Text *key, void *value) {
    (void)file, (void)key, (void)value;
}

static size_t memory(const void *value) {
    return sizeof(Page) + ((const Page *)value)->length;
}

static void release(void *value) {
    Free(((Page *)value)->bytes);
    Free(value);
}

int RedisModule_OnLoad(Context *context) {
    /* The first field of a context is the function that finds the others. */
    GetApi = *(int (**)(const char *, void *))context;
    GetApi("RedisModule_SetModuleAttribs", &SetModuleAttribs);
    GetApi("RedisModule_CreateCommand", &CreateCommand);
    GetApi("RedisModule_CreateDataType", &CreateDataType);
    GetApi("RedisModule_ReplyWithLongLong", &ReplyWithLongLong);
    GetApi("RedisModule_ReplyWithNull", &ReplyWithNull);
    GetApi("RedisModule_WrongArity", &WrongArity);
    GetApi("RedisModule_OpenKey", &OpenKey);
    GetApi("RedisModule_CloseKey", &CloseKey);
    GetApi("RedisModule_ModuleTypeSetValue", &SetValue);
    GetApi("RedisModule_ModuleTypeGetType", &GetType);
    GetApi("RedisModule_ModuleTypeGetValue", &GetValue);
    GetApi("RedisModule_StringToLongLong", &StringToLongLong);
    GetApi("RedisModule_Alloc", &Alloc);
    GetApi("RedisModule_Free", &Free);
    GetApi("RedisModule_SaveStringBuffer", &SaveStringBuffer);
    GetApi("RedisModule_LoadStringBuffer", &LoadStringBuffer);
    SetModuleAttribs(context, "pages", 1, 1);
    Methods methods = {1, load, save, rewrite, memory, NULL, release};
    page_type = CreateDataType(context, "demo-page", 0, &methods);
    if (!page_type) return 1;
    CreateCommand(context, "page.write", page_write, "write deny-oom", 1, 1, 1);
    CreateCommand(context, "page.sum", page_sum, "readonly", 1, 1, 1);
    return OK;
}

// Prints the JSON schemas that zod makes of its types, as clients send them.
//
//   npm install zod && node zod_schemas.mjs > zod_schemas.json
//
// Each type is a property of an object, as where a client asks for an object. `input` is not used:
// clients ask for what they parse.
import { createRequire } from "node:module";
import { z } from "zod";

const { version } = createRequire(import.meta.url)("zod/package.json");
const Color = z.enum(["red", "green", "blue"]);
const Cat = z.object({ kind: z.literal("cat"), lives: z.number().int() });
const Dog = z.object({ kind: z.literal("dog"), breed: z.string() });
const Category = z.object({
  name: z.string(),
  get children() {
    return z.array(Category);
  },
});
const Json = z.json();

const types = {
  string: z.string(),
  stringMinMax: z.string().min(2).max(10),
  stringLength: z.string().length(5),
  regex: z.string().regex(/^[a-z]+-\d{2}$/),
  regexCaseless: z.string().regex(/^ab+$/i),
  startsWith: z.string().startsWith("ab"),
  endsWith: z.string().endsWith("yz"),
  includes: z.string().includes("mn"),
  lowercase: z.string().lowercase(),
  uppercase: z.string().uppercase(),
  trim: z.string().trim(),
  describe: z.string().describe("A name."),
  meta: z.string().meta({ examples: ["x"], alias: "n" }),
  default: z.string().default("x"),
  optional: z.string().optional(),
  nullable: z.string().nullable(),
  nullish: z.string().nullish(),
  readonly: z.array(z.string()).readonly(),
  email: z.email(),
  url: z.url(),
  httpUrl: z.httpUrl(),
  hostname: z.hostname(),
  uuid: z.uuid(),
  uuidv4: z.uuidv4(),
  guid: z.guid(),
  emoji: z.emoji(),
  nanoid: z.nanoid(),
  cuid: z.cuid(),
  cuid2: z.cuid2(),
  ulid: z.ulid(),
  xid: z.xid(),
  ksuid: z.ksuid(),
  base64: z.base64(),
  base64url: z.base64url(),
  hex: z.hex(),
  hash: z.hash("sha256"),
  jwt: z.jwt(),
  e164: z.e164(),
  mac: z.mac(),
  ipv4: z.ipv4(),
  ipv6: z.ipv6(),
  cidrv4: z.cidrv4(),
  cidrv6: z.cidrv6(),
  isoDate: z.iso.date(),
  isoTime: z.iso.time(),
  isoDatetime: z.iso.datetime(),
  isoDatetimeOffset: z.iso.datetime({ offset: true }),
  isoDuration: z.iso.duration(),
  number: z.number(),
  numberRange: z.number().min(0.5).max(99.5),
  numberPositive: z.number().positive(),
  numberMultiple: z.number().multipleOf(0.25),
  int: z.int(),
  int32: z.int32(),
  uint32: z.uint32(),
  float32: z.float32(),
  float64: z.float64(),
  boolean: z.boolean(),
  null: z.null(),
  any: z.any(),
  unknown: z.unknown(),
  never: z.never().optional(),
  literal: z.literal("a"),
  literals: z.literal(["a", 1, null, true]),
  enum: Color,
  nativeEnum: z.enum({ Up: 0, Down: 1 }),
  array: z.array(z.string()),
  arrayMinMax: z.array(z.number()).min(1).max(3),
  nonempty: z.array(z.string()).nonempty(),
  tuple: z.tuple([z.string(), z.number()]),
  tupleRest: z.tuple([z.string()], z.number()),
  object: z.object({ a: z.string() }),
  strictObject: z.strictObject({ a: z.string() }),
  looseObject: z.looseObject({ a: z.string() }),
  catchall: z.object({ a: z.string() }).catchall(z.number()),
  partial: z.object({ a: z.string(), b: z.number() }).partial(),
  record: z.record(z.string(), z.number()),
  recordEnum: z.record(Color, z.number()),
  partialRecordEnum: z.partialRecord(Color, z.number()),
  recordPattern: z.record(z.string().regex(/^x-/), z.string()),
  recordUuid: z.record(z.uuid(), z.string()),
  union: z.union([z.string(), z.number()]),
  discriminatedUnion: z.discriminatedUnion("kind", [Cat, Dog]),
  xor: z.xor ? z.xor([z.string(), z.number()]) : z.union([z.string(), z.number()]),
  intersection: z.intersection(z.object({ a: z.string() }), z.object({ b: z.number() })),
  recursive: Category,
  lazy: z.lazy(() => z.string()),
  json: Json,
  templateLiteral: z.templateLiteral(["v", z.number(), ".", Color]),
  stringbool: z.stringbool(),
  coerceNumber: z.coerce.number(),
  pipe: z.string().pipe(z.string().min(1)),
  refine: z.string().refine((value) => value.length > 2),
  brand: z.string().brand("Id"),
  catch: z.string().catch("x"),
  prefault: z.string().prefault("x"),
};

const schemas = {};
for (const [name, type] of Object.entries(types)) {
  for (const [target, suffix] of [["draft-2020-12", ""], ["draft-7", "@7"], ["openapi-3.0", "@openapi"]]) {
    schemas[name + suffix] = z.toJSONSchema(z.object({ value: type }), { target, io: "output" });
  }
}
console.log(JSON.stringify({ version, schemas }, null, 1));

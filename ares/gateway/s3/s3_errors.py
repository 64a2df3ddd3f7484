"""S3's errors: codes, statuses, sentences, and the document of an answer."""

import enum
from collections.abc import Mapping

from ares.gateway.s3.exchange import HttpResponse
from ares.gateway.s3.xml_text import XML_HEAD, text_element

SHOWN_VALUE_CHARACTERS_MAX = 100


class S3Code(enum.Enum):
    """The codes of errors. The name of a member is the word in the document."""

    # fmt: off
    AccessDenied = 403, "Access Denied"
    AccessForbidden = 403, "CORSResponse: This CORS request is not allowed."
    AuthorizationHeaderMalformed = 400, "The authorization header you provided is invalid."
    AuthorizationQueryParametersError = 400, "The authorization query parameters are invalid."
    BadDigest = 400, "The checksum you specified did not match what we received."
    BadRequest = 400, "Bad request."
    BucketAlreadyExists = 409, "The requested bucket name is not available."
    BucketAlreadyOwnedByYou = 409, "The bucket you tried to create exists, and you own it."
    BucketNotEmpty = 409, "The bucket you tried to delete is not empty."
    ConditionalRequestConflict = 409, "A conflicting operation occurred during this request."
    EntityTooLarge = 400, "Your proposed upload exceeds the maximum allowed size."
    EntityTooSmall = 400, "Your proposed upload is smaller than the minimum allowed size."
    ExpiredToken = 400, "The provided token has expired."
    Gone = 410, "The position you asked for is no longer kept."
    IllegalVersioningConfigurationException = 400, "The versioning configuration is invalid."
    IncompleteBody = 400, "The number of bytes differs from the Content-Length header."
    InternalError = 500, "We encountered an internal error. Please try again."
    InvalidAccessKeyId = 403, "The access key id you provided does not exist in our records."
    InvalidArgument = 400, "Invalid argument."
    InvalidBucketName = 400, "The specified bucket is not valid."
    InvalidBucketState = 409, "The request is not valid for the current state of the bucket."
    InvalidChunkSizeError = 403, "Only the last chunk is allowed to have a size below 8192 bytes."
    InvalidDigest = 400, "The Content-MD5 you specified is not valid."
    InvalidLocationConstraint = 400, "The specified location constraint is not valid."
    InvalidObjectState = 403, "The operation is not valid for the current state of the object."
    InvalidPart = 400, "One or more of the specified parts could not be found."
    InvalidPartNumber = 416, "The requested partnumber is not satisfiable."
    InvalidPartOrder = 400, "The list of parts was not in ascending order."
    InvalidPolicyDocument = 400, "The content of the form does not meet the policy's conditions."
    InvalidRange = 416, "The requested range is not satisfiable."
    InvalidRequest = 400, "Invalid request."
    InvalidStorageClass = 400, "The storage class you specified is not valid."
    InvalidTag = 400, "The tag provided was not a valid tag."
    InvalidURI = 400, "The specified URI could not be parsed."
    KeyTooLongError = 400, "Your key is too long."
    MalformedACLError = 400, "The document of the access control list is not valid."
    MalformedPOSTRequest = 400, "The body of your request is not well-formed multipart/form-data."
    MalformedTrailerError = 400, "The request contained trailing data that was not well-formed."
    MalformedXML = 400, "The XML you provided was not well-formed or is not of our schema."
    MaxPostPreDataLengthExceeded = 400, "The fields before the file are too long."
    MetadataTooLarge = 400, "Your metadata headers exceed the maximum allowed metadata size."
    MethodNotAllowed = 405, "The specified method is not allowed against this resource."
    MissingContentLength = 411, "You must provide the Content-Length HTTP header."
    MissingRequestBodyError = 400, "Request body is empty."
    MissingSecurityHeader = 400, "Your request was missing a required header."
    NoSuchBucket = 404, "The specified bucket does not exist."
    NoSuchCORSConfiguration = 404, "The CORS configuration does not exist."
    NoSuchKey = 404, "The specified key does not exist."
    NoSuchLifecycleConfiguration = 404, "The lifecycle configuration does not exist."
    NoSuchTagSet = 404, "The TagSet does not exist."
    NoSuchUpload = 404, "The specified upload does not exist: it may be completed or aborted."
    NoSuchVersion = 404, "The specified version does not exist."
    NotFound = 404, "Not found."
    NotImplemented = 501, "A header or query you provided implies functionality not implemented."
    NotModified = 304, "Not modified."
    OperationAborted = 409, "A conflicting operation is in progress. Please try again."
    PreconditionFailed = 412, "At least one of the pre-conditions you specified did not hold."
    QuotaExceeded = 403, "The bucket's quota would be exceeded."
    RequestHeaderSectionTooLarge = 400, "Your request header or query exceeds the maximum size."
    RequestTimeout = 400, "Your connection was not read from or written to in time."
    RequestTimeTooSkewed = 403, "The request's time and the server's time differ too much."
    ServiceUnavailable = 503, "Service is unable to handle the request."
    SignatureDoesNotMatch = 403, "The request signature we calculated differs from yours."
    SlowDown = 503, "Please reduce your request rate."
    TooManyBuckets = 400, "You have tried to create more buckets than allowed."
    UnexpectedContent = 400, "This request contains unsupported content."
    XAmzContentChecksumMismatch = 400, "The checksum of the content does not match the header."
    XAmzContentSHA256Mismatch = 400, "The 'x-amz-content-sha256' header differs from the content."
    # fmt: on

    status: int
    sentence: str

    def __new__(cls, status: int, sentence: str) -> "S3Code":
        """Number the members: two codes may share a status and a sentence."""
        member = object.__new__(cls)
        member._value_ = len(cls.__members__)
        member.status, member.sentence = status, sentence
        return member


class S3Error(Exception):
    """An answer of failure. ``fields``: further elements of the document, by name."""

    def __init__(
        self,
        code: S3Code,
        message: str = "",
        headers: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self.code = code
        self.message = message or code.sentence
        self.headers = dict(headers or {})
        self.fields = dict(fields or {})
        super().__init__(f"{code.name}: {self.message}")

    def xml(self, resource: str, request_id: str) -> bytes:
        """Return the document of the error."""
        told = {
            "Code": self.code.name,
            "Message": self.message,
            **self.fields,
            "Resource": resource,
            "RequestId": request_id,
        }
        content = "".join(text_element(name, value) for name, value in told.items())
        return f"{XML_HEAD}<Error>{content}</Error>".encode()

    def answer(self, resource: str, request_id: str, with_body: bool = True) -> HttpResponse:
        """Return the answer; without a body for HEAD. ``resource``: the path of the request."""
        headers = list(self.headers.items())
        if not with_body or self.code.status == 304:
            return HttpResponse(self.code.status, headers)
        body = self.xml(resource, request_id)
        headers.append(("Content-Type", "application/xml"))
        return HttpResponse(self.code.status, headers, body)


def bad_argument(name: str, value: str, rule: str) -> S3Error:
    """Return InvalidArgument for a field or a header that breaks a rule."""
    fields = {"ArgumentName": name, "ArgumentValue": value[:SHOWN_VALUE_CHARACTERS_MAX]}
    return S3Error(S3Code.InvalidArgument, f"Invalid argument: {rule}.", fields=fields)


def not_answered(story: str, header: str = "") -> S3Error:
    """Return NotImplemented for a request whose meaning would otherwise be lost."""
    fields = {"Header": header} if header else {}
    return S3Error(S3Code.NotImplemented, f"Not implemented: {story}.", fields=fields)
